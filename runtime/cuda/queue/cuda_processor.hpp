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
/// except the first ones and the first measured ones. There are two sets: a step is enqueued while
/// the one before may run.
class CudaProcessor final : public Processor<Bfloat16> {
 public:
  /// `run_threads`: whose members wait for the device, under its deadline. `watch` is asked
  /// meanwhile and may throw, such as what went wrong in a communicator.
  CudaProcessor(RunThreads& run_threads, int rank, int device, Algorithms& algorithms);
  ~CudaProcessor() override;

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] cudaStream_t stream(Queue queue) const;
  /// Of the collectives that run beside the compute queue's kernels.
  [[nodiscard]] cudaStream_t side_stream() const;
  [[nodiscard]] const Attention& attention() const;
  [[nodiscard]] GraphsMade graphs() const;
  [[nodiscard]] std::string gemm_algorithms() const;  ///< Gemm::in_use()
  void watch(std::function<void()> asked) { watch_ = std::move(asked); }
  /// GPU memory already in use, for the rank's memory account: by CUDA and its libraries, and by
  /// the communicators.
  /// `alone`: no other rank uses the GPU.
  void count(Bytes context, Bytes communicators, bool alone) {
    context_ = context;
    communicators_ = communicators;
    alone_ = alone;
  }
  void count_rest() override;

  void* allocate(std::int64_t bytes) override;
  void free(void* block) override;
  [[nodiscard]] std::optional<Bytes> available() const override;
  [[nodiscard]] Kernels<Bfloat16>& on(Queue queue) override;
  void prepare(std::span<const ChunkSpec> chunks, Memory& memory) override;
  void begin_step(const Program& program, bool timed, bool repeatable) override;
  void close_step(const void* result, std::int64_t bytes) override;
  void end_step(StepTimes* times, void* into) override;
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

  /// A step from its begin to its end.
  struct Step {
    std::vector<Event> done_events;  ///< by id; of those that are awaited_
    Event over;                      ///< all work but gather_updated, and the copy of the result
    std::optional<DeviceBuffer> result;  ///< pinned
    std::int64_t result_bytes = 0;
    bool timed = false;             ///< the step is measured; then:
    std::vector<Event> time_marks;  ///< with times; reused
    std::size_t used_time_marks = 0;
    std::vector<std::size_t> began, ended;  ///< by id
    std::size_t closed = 0;                 ///< next to `over`
    std::vector<SubSpan> sub_spans;
  };
  /// Of those that have begun: the last one, and the first one that has not ended.
  [[nodiscard]] Step& step() { return steps_[(begun_ - 1) % steps_.size()]; }
  [[nodiscard]] const Step& ending() const { return steps_[ended_ % steps_.size()]; }
  [[nodiscard]] Step& ending() { return steps_[ended_ % steps_.size()]; }
  [[nodiscard]] cudaEvent_t front(std::size_t step) const {
    return fronts_[step % fronts_.size()].get();
  }
  /// Of Stream::set_mark.
  [[nodiscard]] cudaEvent_t mark(std::size_t number);

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
  /// Of the step that is ending.
  [[nodiscard]] Seconds time_of(std::size_t time_mark) const;
  void fill(StepTimes& times);
  [[nodiscard]] bool is_over(std::uint32_t id) const;
  void begin_times(bool follows_timed);
  void await_step_before();
  /// Waits within the deadline of the run.
  void await_event(cudaEvent_t event, Seconds awake = Seconds{200e-6});
  [[nodiscard]] std::string unfinished() const;

  RunThreads& run_threads_;
  int rank_;
  int device_;
  std::function<void()> watch_ = [] {};
  std::array<std::unique_ptr<CudaKernels>, kQueues> queues_;
  std::optional<DeviceBuffer> staging_;  ///< pinned, for read and write
  Bytes context_;
  bool alone_ = false;
  Bytes communicators_;
  Memory* memory_ = nullptr;           ///< the rank's account, while it trains
  std::int64_t batch_bytes_ = 0;       ///< tokens and targets of a microbatch
  std::int64_t token_rows_bytes_ = 0;  ///< 0: the embedding is not here
  std::vector<DeviceBuffer> token_rows_;
  std::map<const void*, std::size_t> token_rows_of_;  ///< by batch

  const Program* program_ = nullptr;
  std::vector<bool> awaited_;  ///< by id: others wait for it, or it is the last one of its queue
  std::array<std::optional<std::uint32_t>, kQueues> last_;  ///< ids; none: the queue is empty
  /// The same without gather_updated, whose results the next step awaits.
  std::array<std::optional<std::uint32_t>, kQueues> last_needed_;
  std::array<Step, 2> steps_;
  std::size_t begun_ = 0;  ///< steps
  std::size_t ended_ = 0;
  std::array<Event, 3> fronts_;  ///< with times: on the compute queue before a measured step; of
                                 ///< two that have not ended and the one before
  Seconds origin_;  ///< when the front of step `origin_of_` was passed, by the steady clock
  std::size_t origin_of_ = 0;
  std::vector<Event> marks_;
};

}  // namespace echelon::cuda
