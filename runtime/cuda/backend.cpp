#include "runtime/cuda/backend.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "runtime/cuda/comm/cuda_world.hpp"
#include "runtime/cuda/device/devices.hpp"
#include "runtime/cuda/device/gpus.hpp"
#include "runtime/cuda/device/resources.hpp"
#include "runtime/cuda/queue/cuda_processor.hpp"

namespace echelon::cuda {
namespace {

class CudaBackend final : public Backend<Bfloat16> {
 public:
  /// Takes `host` once nothing can fail any more: its destruction reports to other processes how
  /// the run ended.
  CudaBackend(RunThreads& run_threads, std::unique_ptr<World>& host, const PlanFile& plan,
              const Gpus& gpus)
      : facts_(facts_of_gpus(static_cast<int>(gpus.device.size()), gpus.device.begin()->second)),
        algorithms_(algorithms_path(facts_.name)) {
    std::map<int, Bytes> contexts;  // by rank; those of one GPU share it
    std::set<int> opened;
    for (const int rank : host->local_ranks()) {
      const int device = gpus.device.at(rank);
      processors_.emplace(rank,
                          std::make_unique<CudaProcessor>(run_threads, rank, device, algorithms_));
      contexts[rank] = opened.insert(device).second ? memory_of_device().used : Bytes{};
    }
    world_ = std::make_unique<CudaWorld>(
        run_threads, std::move(host), plan.plan, plan.model, gpus,
        [this](int rank, GroupRole role) {
          const CudaProcessor& processor = *processors_.at(rank);
          return is_beside(role) ? processor.side_stream() : processor.stream(queue_of(role));
        },
        world_options_of(plan));
    for (const auto& [rank, processor] : processors_) {
      processor->watch([this, rank = rank] { world_->check(rank); });
      processor->count(contexts.at(rank), world_->communicator_memory(rank), !gpus.shared);
    }
  }
  ~CudaBackend() override { algorithms_.save(); }

  [[nodiscard]] bool issues_in_order() const override { return true; }
  [[nodiscard]] World& world() override { return *world_; }
  [[nodiscard]] World& host_world() override { return world_->host(); }
  [[nodiscard]] Processor<Bfloat16>& at(int rank) override { return *processors_.at(rank); }
  void give_up() override { world_->abort_all(); }
  [[nodiscard]] std::map<std::string, std::string> environment() const override {
    std::map<std::string, std::string> known{{"gpu", facts_.name},
                                             {"cuda driver", version_text(facts_.driver)},
                                             {"cuda runtime", version_text(facts_.runtime)},
                                             {"cublaslt", std::to_string(facts_.cublas)},
                                             {"communicators", world_->transport()}};
    const std::string& attention = processors_.begin()->second->attention().by();
    if (!attention.empty()) known["attention"] = attention;
    const std::string gemms = processors_.begin()->second->gemm_algorithms();
    if (!gemms.empty()) known["gemm algorithms"] = gemms;
    GraphsMade graphs;
    for (const auto& [rank, processor] : processors_) {
      const GraphsMade own = processor->graphs();
      graphs.count += own.count;
      graphs.memory += own.memory;
    }
    if (graphs.count > 0) {
      known["cuda graphs"] = fmt::format("{} ({:.1f} MiB, counted as CUDA context)", graphs.count,
                                         graphs.memory.in(1_MiB));
    }
    return known;
  }

 private:
  GpuFacts facts_;  ///< of the first local rank's
  Algorithms algorithms_;
  std::map<int, std::unique_ptr<CudaProcessor>> processors_;
  std::unique_ptr<CudaWorld> world_;  ///< before the streams it is on
};

}  // namespace

Result<std::unique_ptr<Backend<Bfloat16>>> open_backend(RunThreads& run_threads,
                                                        std::unique_ptr<World> host,
                                                        const PlanFile& plan) {
  try {
    const Result<Gpus> gpus = choose_gpus(run_threads, *host);
    if (gpus) {
      return std::unique_ptr<Backend<Bfloat16>>(
          std::make_unique<CudaBackend>(run_threads, host, plan, *gpus));
    }
    run_threads.stop(RunFailure(gpus.error()));
    return gpus.error();
  } catch (...) {
    run_threads.stop(as_run_failure(std::current_exception()));
    throw;
  }
}

}  // namespace echelon::cuda
