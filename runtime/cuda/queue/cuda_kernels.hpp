// CudaKernels: a CUDA stream as a queue of a rank, and the kernels enqueued on it.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <typeinfo>
#include <vector>

#include "runtime/backend/kernels.hpp"
#include "runtime/cuda/attention/attention.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/gemm/gemm.hpp"
#include "runtime/cuda/kernels/launch_errors.hpp"
#include "runtime/cuda/kernels/token_rows.hpp"
#include "runtime/cuda/queue/cuda_processor.hpp"
#include "runtime/cuda/queue/graph_cache.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon::cuda {

class CudaKernels final : public Kernels<Bfloat16>, private SideStream {
 public:
  using T = Bfloat16;

  /// `priority`: the stream's, as cudaStreamCreateWithPriority has it; `side_priority`: of its side
  /// stream, if it has one.
  CudaKernels(CudaProcessor& processor, int priority, std::optional<int> side_priority,
              Algorithms& algorithms);

  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  /// Null if it has none.
  [[nodiscard]] cudaStream_t side_stream() const { return side_stream_.get(); }
  /// Allocates from `memory` what the kernels need for these chunks besides their operands.
  void prepare(std::span<const ChunkSpec> chunks, Memory& memory);
  /// Pinned memory for the uploads of two steps, `count` each. Allocating it may wait for GPUs
  /// whose kernels wait for work that this thread has not enqueued yet, so it is done before a
  /// step.
  void reserve_uploads(std::size_t count, std::int64_t bytes);
  /// The step before the last one is over: pinned memory of its uploads may be reused.
  /// `repeatable`: the step enqueues the same calls as the last repeatable step.
  void begin_step(bool repeatable) {
    uploads_ = uploads_end_ == uploads_of_step_ ? uploads_of_step_ : 0;
    uploads_end_ = uploads_ + uploads_of_step_;
    repeatable_ = repeatable && !communicates_;
  }
  [[nodiscard]] GraphCache& graph_cache() { return graph_cache_; }
  [[nodiscard]] const Attention& attention() const { return attention_; }
  [[nodiscard]] const Gemm& gemm() const { return gemm_; }

  void begin(const Instruction& i) override;
  WithinTimes end(const Instruction& i) override;
  void wait(const Instruction& i) override;
  void set_mark(std::size_t mark) override;
  void wait_for_mark(std::size_t mark) override;
  void start(Within part) override;
  void stop() override;
  void upload(const void* from, void* to, std::int64_t bytes) override;
  void download(const void* from, void* to, std::int64_t bytes) override;
  void clear(void* block, std::int64_t bytes) override;
  [[nodiscard]] SideStream* side() override { return side_stream_ ? this : nullptr; }

#define ECHELON_OPERATOR(...) __VA_ARGS__ override;
#include "runtime/backend/operators.def"
#undef ECHELON_OPERATOR

 private:
  /// How far the stream may lag: the driver queues about a thousand launches; then the launching
  /// thread blocks in the driver, where no deadline can reach it while the GPU waits for a lost
  /// rank. A call is three launches at most. Source: measured in
  /// stackoverflow.com/questions/53970187; NVIDIA states no number.
  static constexpr std::size_t kMarks = 8;
  static constexpr int kCallsBetweenMarks = 32;

  void fork() override;
  [[nodiscard]] Mark mark() override;
  void join(Mark mark) override;

  /// Waits until the stream has caught up enough for another call.
  void throttle();
  /// Enqueues the work of `how` unless a graph replays it, and captures it if a graph is being
  /// made. `operands`: everything it depends on.
  template <class How, class... Operands>
  void enqueue(const How& how, const Operands&... operands) {
    graph_cache_.note(typeid(How).hash_code(), operands...);
    if (!graph_cache_.enqueues()) return;
    if (graph_cache_.capture_stream() == nullptr)
      throttle();  // events must not be queried during stream capture
    how(stream());
    if (graph_cache_.capture_stream() == nullptr) return;
    check(take_launch_error(), "start a kernel");
    bool captured = true;
    try {
      how(graph_cache_.capture_stream());
      captured = take_launch_error() == cudaSuccess;
    } catch (const RunFailure&) {  // a library that cannot be captured, or too little memory
      captured = false;
    }
    if (!captured) graph_cache_.give_up_capture();
  }
  void copy_bytes(const void* from, void* to, std::int64_t bytes);
  void product(Product p, const Operands& operands);
  /// The table of these frequencies.
  [[nodiscard]] const float* rotation(int width, const RotaryFrequencies& frequencies) const;
  template <class E>
  [[nodiscard]] E* scratch(std::int64_t count) const;

  CudaProcessor& processor_;
  OwnStream stream_;
  OwnStream side_stream_;
  Event forked_;  ///< waits for an event refer to its latest record before them: one is enough
  std::array<Event, kOpenMarks> joins_;
  Mark next_join_ = 0;
  Gemm gemm_;
  Attention attention_;
  std::byte* scratch_ = nullptr;  ///< of one kernel at a time
  std::int64_t scratch_bytes_ = 0;
  struct Rotation {
    RotaryFrequencies frequencies;
    float* table = nullptr;
  };
  std::map<int, Rotation> rotations_;  ///< by width of what is rotated of a head
  TokenRows token_rows_;
  std::vector<DeviceBuffer> staging_;  ///< pinned, one per upload of two steps
  std::int64_t staging_bytes_ = 0;     ///< of each
  std::size_t uploads_of_step_ = 0;
  std::size_t uploads_ = 0;                ///< the next one
  std::size_t uploads_end_ = 0;            ///< of this step
  std::optional<DeviceBuffer> downloads_;  ///< pinned, of one download
  std::int64_t downloads_bytes_ = 0;
  Event downloaded_;
  std::array<Event, kMarks> marks_;  ///< kCallsBetweenMarks calls apart
  std::size_t mark_ = 0;             ///< the one that is set next
  int calls_ = 0;                    ///< since the last one
  GraphCache graph_cache_;
  bool repeatable_ = false;    ///< of this step, forwards and backwards without communication
  bool communicates_ = false;  ///< within forwards and backwards
  bool timed_ = false;
  std::uint32_t id_ = 0;
  std::vector<CudaProcessor::SubSpan> open_;
};

}  // namespace echelon::cuda
