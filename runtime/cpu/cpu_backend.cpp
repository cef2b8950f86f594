#include "runtime/cpu/cpu_backend.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "runtime/cpu/cpu_kernels.hpp"

namespace echelon {
namespace {

template <class T>
class CpuProcessor final : public Processor<T> {
 public:
  explicit CpuProcessor(int threads) : threads_(threads) {}

  void* allocate(std::int64_t bytes) override { return host_memory().allocate(bytes); }
  void free(void* block) override { host_memory().free(block); }
  [[nodiscard]] Kernels<T>& on(Queue queue) override {
    omp_set_num_threads(threads_);  // of this thread alone
    return queues_[static_cast<std::size_t>(queue)];
  }
  void prepare(std::span<const ChunkSpec>, Memory&) override {}
  void begin_step(const Program&, bool, bool) override {}
  void close_step(const void* result, std::int64_t bytes) override {
    const auto* const first = static_cast<const std::byte*>(result);
    results_.emplace_back(first, first + bytes);
  }
  void end_step(StepTimes*, void* into) override {
    std::copy(results_.front().begin(), results_.front().end(), static_cast<std::byte*>(into));
    results_.pop_front();
  }
  [[nodiscard]] bool in_host_memory() const override { return true; }
  void read(const void* from, void* host, std::int64_t bytes) override {
    std::memcpy(host, from, static_cast<std::size_t>(bytes));
  }
  void write(const void* host, void* to, std::int64_t bytes) override {
    std::memcpy(to, host, static_cast<std::size_t>(bytes));
  }

 private:
  int threads_;
  std::deque<std::vector<std::byte>> results_;  ///< of closed steps
  std::array<CpuKernels<T>, kQueues> queues_;
};

template <class T>
class CpuBackend final : public Backend<T> {
 public:
  CpuBackend(std::unique_ptr<World> world, int threads) : world_(std::move(world)) {
    for (const int rank : world_->local_ranks()) {
      processors_.emplace(rank, cpu_processor<T>(threads));
    }
  }
  [[nodiscard]] bool issues_in_order() const override { return false; }
  [[nodiscard]] World& world() override { return *world_; }
  [[nodiscard]] World& host_world() override { return *world_; }
  [[nodiscard]] Processor<T>& at(int rank) override { return *processors_.at(rank); }
  [[nodiscard]] std::map<std::string, std::string> environment() const override { return {}; }

 private:
  std::unique_ptr<World> world_;
  std::map<int, std::unique_ptr<Processor<T>>> processors_;
};

}  // namespace

template <class T>
std::unique_ptr<Processor<T>> cpu_processor(int threads) {
  return std::make_unique<CpuProcessor<T>>(threads);
}

template <class T>
std::unique_ptr<Backend<T>> cpu_backend(std::unique_ptr<World> world, int threads) {
  return std::make_unique<CpuBackend<T>>(std::move(world), threads);
}

#define ECHELON_CPU_BACKEND(T)                                  \
  template std::unique_ptr<Processor<T>> cpu_processor<T>(int); \
  template std::unique_ptr<Backend<T>> cpu_backend<T>(std::unique_ptr<World>, int);
ECHELON_CPU_BACKEND(double)
ECHELON_CPU_BACKEND(float)
ECHELON_CPU_BACKEND(Bfloat16)
#undef ECHELON_CPU_BACKEND

}  // namespace echelon
