// CudaProcessor: the memory and queues of one rank on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/crew.hpp"
#include "runtime/cuda/attention.hpp"
#include "runtime/cuda/gemm.hpp"
#include "runtime/cuda/resources.hpp"
#include "runtime/processor.hpp"

namespace echelon::cuda {

class CudaKernels;

/// One event per instruction says that it is over; in measured steps pairs of timing events say
/// when it ran. All are made before they are needed: nothing is allocated in a step but in the
/// first measured one.
class CudaProcessor final : public Processor<Bfloat16> {
 public:
  /// `crew`: whose members wait for the device, under its deadline. `watch` is asked meanwhile and
  /// may throw, such as what went wrong in a communicator.
  CudaProcessor(Crew& crew, int rank, int device, Algorithms& algorithms);
  ~CudaProcessor() override;

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] cudaStream_t stream(Queue queue) const;
  [[nodiscard]] const Attention& attention() const;
  void watch(std::function<void()> asked) { watch_ = std::move(asked); }
  /// What was taken of the GPU already, for the account of the rank's memory: by CUDA and its
  /// libraries, and by the communicators.
  void count(Bytes context, Bytes communicators) {
    context_ = context;
    communicators_ = communicators;
  }

  void* take(std::int64_t bytes) override;
  void give_back(void* block) override;
  [[nodiscard]] std::optional<Bytes> left() const override;
  [[nodiscard]] Kernels<Bfloat16>& on(Queue queue) override;
  void prepare(std::span<const ChunkSpec> chunks, Memory& memory) override;
  void begin_step(const Program& program, bool timed, bool alike) override;
  void end_step(StepTimes* times) override;
  [[nodiscard]] bool in_host_memory() const override { return false; }
  void read(const void* from, void* host, std::int64_t bytes) override;
  void write(const void* host, void* to, std::int64_t bytes) override;

 private:
  friend class CudaKernels;
  /// Part of an instruction's time, between two events.
  struct Spent {
    std::uint32_t id = 0;
    Within part = Within::host;
    int depth = 0;  ///< in other parts
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  [[nodiscard]] CudaKernels& compute() const {
    return *queues_[static_cast<std::size_t>(Queue::compute)];
  }
  void learn(const Program& program);
  [[nodiscard]] std::size_t stamp(cudaStream_t stream);
  [[nodiscard]] Seconds time_of(std::size_t stamp) const;
  void fill(StepTimes& times) const;
  [[nodiscard]] bool is_over(std::int64_t id) const;
  /// As long as the crew lets its members wait.
  void await(cudaEvent_t event);
  [[nodiscard]] std::string unfinished() const;

  Crew& crew_;
  int rank_;
  int device_;
  std::function<void()> watch_ = [] {};
  std::array<std::unique_ptr<CudaKernels>, kQueues> queues_;
  std::optional<Room> staging_;  ///< pinned, for read and write
  Bytes context_;
  Bytes communicators_;
  std::int64_t batch_bytes_ = 0;  ///< tokens and targets of a microbatch

  const Program* program_ = nullptr;
  std::vector<Event> over_;    ///< by id; of those that somebody waits for, and each queue's last
  std::vector<bool> awaited_;  ///< by id
  std::array<std::int64_t, kQueues> last_{};  ///< ids; -1: the queue is empty

  bool timed_ = false;         ///< the step is measured; then:
  std::vector<Event> stamps_;  ///< with times; reused
  std::size_t used_stamps_ = 0;
  std::vector<std::size_t> began_, ended_;  ///< by id
  std::vector<Spent> spent_;
  Seconds origin_;  ///< when stamp 0 was over on an idle device, by the steady clock
};

}  // namespace echelon::cuda
