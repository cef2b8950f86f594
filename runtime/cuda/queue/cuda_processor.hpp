// CudaProcessor: the memory and queues of one rank on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend/processor.hpp"
#include "runtime/cuda/attention/attention.hpp"
#include "runtime/cuda/device/resources.hpp"
#include "runtime/cuda/gemm/gemm.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon::cuda {

class CudaKernels;

/// CUDA graphs, and the device memory they take.
struct GraphsMade {
  std::size_t count = 0;
  Bytes memory;
};

/// One event per instruction marks its completion; in measured steps pairs of timing events give
/// its start and end. All are created before they are needed: no allocation happens in a step,
/// except the first measured one.
class CudaProcessor final : public Processor<Bfloat16> {
 public:
  /// `run_threads`: whose members wait for the device, under its deadline. `watch` is asked
  /// meanwhile and may throw, such as what went wrong in a communicator.
  CudaProcessor(RunThreads& run_threads, int rank, int device, Algorithms& algorithms);
  ~CudaProcessor() override;

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] cudaStream_t stream(Queue queue) const;
  /// Of the collectives that run beside the compute queue's kernels.
  [[nodiscard]] cudaStream_t tensor_parallel_stream() const;
  [[nodiscard]] const Attention& attention() const;
  [[nodiscard]] GraphsMade graphs() const;
  [[nodiscard]] std::string gemm_algorithms() const;  ///< Gemm::in_use()
  void watch(std::function<void()> asked) { watch_ = std::move(asked); }
  /// GPU memory already in use, for the rank's memory account: by CUDA and its libraries, and by
  /// the communicators.
  void count(Bytes context, Bytes communicators) {
    context_ = context;
    communicators_ = communicators;
  }

  void* allocate(std::int64_t bytes) override;
  void free(void* block) override;
  [[nodiscard]] std::optional<Bytes> available() const override;
  [[nodiscard]] Kernels<Bfloat16>& on(Queue queue) override;
  void prepare(std::span<const ChunkSpec> chunks, Memory& memory) override;
  void begin_step(const Program& program, bool timed, bool repeatable) override;
  void end_step(StepTimes* times) override;
  [[nodiscard]] bool in_host_memory() const override { return false; }
  void read(const void* from, void* host, std::int64_t bytes) override;
  void write(const void* host, void* to, std::int64_t bytes) override;

 private:
  friend class CudaKernels;
  /// Sub-span of an instruction, between two events.
  struct SubSpan {
    std::uint32_t id = 0;
    Within part = Within::host;
    int depth = 0;  ///< in other parts
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  [[nodiscard]] CudaKernels& compute() const {
    return *queues_[static_cast<std::size_t>(Queue::compute)];
  }
  void prepare_events(const Program& program);
  void prepare_token_rows(const Program& program);
  /// Where the rows of a batch go, by token (TokenRows), which lies at `batch`.
  [[nodiscard]] std::int32_t* token_rows_for(const void* batch);
  /// Where they are.
  [[nodiscard]] const std::int32_t* token_rows(const void* batch) const;
  /// Of what the step before captured.
  void make_graphs();
  [[nodiscard]] std::size_t time_mark(cudaStream_t stream);
  [[nodiscard]] Seconds time_of(std::size_t time_mark) const;
  void fill(StepTimes& times) const;
  [[nodiscard]] bool is_over(std::int64_t id) const;
  /// Waits within the deadline of the run.
  void await_event(cudaEvent_t event);
  [[nodiscard]] std::string unfinished() const;

  RunThreads& run_threads_;
  int rank_;
  int device_;
  std::function<void()> watch_ = [] {};
  std::array<std::unique_ptr<CudaKernels>, kQueues> queues_;
  std::optional<DeviceBuffer> staging_;  ///< pinned, for read and write
  Bytes context_;
  Bytes communicators_;
  Memory* memory_ = nullptr;           ///< the rank's account, while it trains
  std::int64_t batch_bytes_ = 0;       ///< tokens and targets of a microbatch
  std::int64_t token_rows_bytes_ = 0;  ///< 0: the embedding is not here
  std::vector<DeviceBuffer> token_rows_;
  std::map<const void*, std::size_t> token_rows_of_;  ///< by batch

  const Program* program_ = nullptr;
  std::vector<Event> done_events_;  ///< by id; of those that others wait for, and each queue's last
  std::vector<bool> awaited_;       ///< by id
  std::array<std::optional<std::uint32_t>, kQueues> last_;  ///< ids; none: the queue is empty

  bool timed_ = false;             ///< the step is measured; then:
  std::vector<Event> time_marks_;  ///< with times; reused
  std::size_t used_time_marks_ = 0;
  std::vector<std::size_t> began_, ended_;  ///< by id
  std::vector<SubSpan> sub_spans_;
  Seconds origin_;  ///< when time_mark 0 was over on an idle device, by the steady clock
};

}  // namespace echelon::cuda
