// CudaKernels: a CUDA stream as a queue of a rank, and the kernels that are put on it.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <map>
#include <typeinfo>
#include <vector>

#include "runtime/cuda/attention.hpp"
#include "runtime/cuda/cuda_processor.hpp"
#include "runtime/cuda/gemm.hpp"
#include "runtime/cuda/repeats.hpp"
#include "runtime/kernels.hpp"

namespace echelon::cuda {

class CudaKernels final : public Kernels<Bfloat16> {
 public:
  using T = Bfloat16;

  /// `priority`: the stream's, as cudaStreamCreateWithPriority has it.
  CudaKernels(CudaProcessor& processor, int priority, Algorithms& algorithms);

  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  /// What the kernels need beside their operands for these chunks: taken from `memory`.
  void prepare(std::span<const ChunkSpec> chunks, Memory& memory);
  /// Pinned memory for the uploads of a step. Taking it may wait for GPUs on which kernels wait for
  /// what this thread has not put on yet, so it is done before a step.
  void reserve_uploads(std::size_t count, std::int64_t bytes);
  /// Pinned memory of uploads may be used again. `alike`: the step puts the same calls on the
  /// stream as the last one that was so.
  void begin_step(bool alike) {
    uploads_ = 0;
    may_repeat_ = alike && !communicates_;
  }
  [[nodiscard]] Repeats& repeats() { return repeats_; }
  [[nodiscard]] const Attention& attention() const { return attention_; }

  void begin(const Instruction& i) override;
  WithinTimes end(const Instruction& i) override;
  void wait(const Instruction& i) override;
  void start(Within part) override;
  void stop() override;
  void upload(const void* from, void* to, std::int64_t bytes) override;
  void clear(void* block, std::int64_t bytes) override;

  void multiply(Rows<T> x, const T* weight, std::int64_t out, const T* bias, const T* addend,
                T* y) override;
  void multiply_back(Rows<T> dy, const T* weight, std::int64_t in, T* dx) override;
  void add_weight_gradient(Rows<T> dy, Rows<T> x, float* dweight) override;

  void norm_forward(const NormOf<T>& norm, const SumBefore<T>& before, T* y) override;
  void norm_backward(const NormOf<T>& norm, const T* dy, const T* around, T* dx, float* dweight,
                     float* dbias) override;

  void activation_forward(Activation kind, bool gated, const T* x, T* y, std::int64_t rows,
                          std::int64_t width) override;
  void activation_backward(Activation kind, bool gated, const T* x, const T* dy, T* dx,
                           std::int64_t rows, std::int64_t width) override;
  void add_bias(T* x, const T* bias, std::int64_t rows, std::int64_t width) override;
  void bias_gradient(Rows<T> dy, float* dbias) override;
  void add(T* x, const T* y, std::int64_t count) override;
  void copy(const T* from, T* to, std::int64_t count) override;

  void add_positions(T* x, const T* positions, std::int64_t rows, int samples,
                     std::int64_t width) override;
  void position_gradient(Rows<T> dy, int samples, float* dpositions) override;
  void rotate(const AttentionShape& shape, const RotaryFrequencies& frequencies, T* qkv,
              int direction) override;

  void attention_forward(const AttentionShape& shape, const T* qkv, T* out,
                         float* log_sum) override;
  void attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                          const float* log_sum, const T* dout, T* dqkv) override;

  void embedding_forward(const std::int32_t* tokens, const T* weight, T* y, std::int64_t rows,
                         std::int64_t width, std::int64_t first, std::int64_t count) override;
  void embedding_backward(const std::int32_t* tokens, Rows<T> dy, float* dweight,
                          std::int64_t first, std::int64_t count) override;

  void logits_partials(const Logits<T>& logits, float* max, float* sums) override;
  void rescale_sums(const float* part_max, const float* max, float* sums,
                    std::int64_t rows) override;
  void add_losses(const float* max, const float* sums, double* total, std::int64_t rows) override;
  void logits_gradient(const Logits<T>& logits, const float* max, const float* sums,
                       double scale) override;

  void add_gradients(float* x, const float* y, std::int64_t count) override;
  void copy_wide(const float* from, float* to, std::int64_t count) override;
  void widen(const T* from, float* to, std::int64_t count) override;
  void sum_of_squares(const float* x, std::int64_t count, double* total) override;
  void clip_scale(const double* squares, double most, float* scale) override;
  void adam(const AdamStep& step, const float* scale, const Adam<T>& states) override;

 private:
  /// How far the stream may lie behind: the driver takes about a thousand launches, then it holds
  /// the thread that makes them, which no deadline ends when the GPU waits for a rank that is gone.
  /// A call is three launches at most. Source: measured in stackoverflow.com/questions/53970187;
  /// NVIDIA states no number.
  static constexpr std::size_t kMarks = 8;
  static constexpr int kCallsBetweenMarks = 32;

  /// Waits until the stream has come so near that another call may be put on it.
  void follow();
  /// Puts what `how` does on the stream, unless a graph stands for it, and into the graph that is
  /// being recorded. `operands`: all that it depends on.
  template <class How, class... Operands>
  void put(const How& how, const Operands&... operands) {
    repeats_.note(typeid(How).hash_code(), operands...);
    if (!repeats_.puts()) return;
    if (repeats_.records() == nullptr) follow();  // whoever records may not ask for events
    how(stream());
    if (repeats_.records() != nullptr) how(repeats_.records());
  }
  void copy_bytes(const void* from, void* to, std::int64_t bytes);
  void product(Product p, const Operands& operands);
  template <class E>
  [[nodiscard]] E* scratch(std::int64_t count) const;

  CudaProcessor& processor_;
  OwnStream stream_;
  Gemm gemm_;
  Attention attention_;
  std::byte* scratch_ = nullptr;  ///< of one kernel at a time
  std::int64_t scratch_bytes_ = 0;
  struct Rotation {
    RotaryFrequencies frequencies;
    float* table = nullptr;
  };
  std::map<int, Rotation> rotations_;  ///< by head dimension
  std::vector<Room> staging_;          ///< pinned, one per upload of a step
  std::int64_t staging_bytes_ = 0;     ///< of each
  std::size_t uploads_ = 0;
  std::array<Event, kMarks> marks_;  ///< each set kCallsBetweenMarks behind another
  std::size_t mark_ = 0;             ///< the one that is set next
  int calls_ = 0;                    ///< since the last one
  Repeats repeats_;
  bool may_repeat_ = false;    ///< of this step, forwards and backwards without communication
  bool communicates_ = false;  ///< within forwards and backwards
  bool timed_ = false;
  std::uint32_t id_ = 0;
  std::vector<CudaProcessor::Spent> open_;
};

}  // namespace echelon::cuda
