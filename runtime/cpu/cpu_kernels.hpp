// CpuKernels: the kernels of this folder as those of a queue that is the calling thread.
#pragma once

#include <vector>

#include "core/base/units.hpp"
#include "runtime/kernels.hpp"

namespace echelon {

template <class T>
class CpuKernels : public Kernels<T> {
 public:
  void begin(const Instruction&) override;
  WithinTimes end(const Instruction&) override;
  void wait(const Instruction&) override {}  // what was put on a queue is over
  void start(Within part) override;
  void stop() override;
  void waited(Within part, Seconds time) override;
  void upload(const void* from, void* to, std::int64_t bytes) override;
  void clear(void* block, std::int64_t bytes) override;

  void multiply(Rows<T> x, const T* weight, std::int64_t out, const T* bias, const T* addend,
                T* y) override;
  void multiply_back(Rows<T> dy, const T* weight, std::int64_t in, T* dx) override;
  void add_weight_gradient(Rows<T> dy, Rows<T> x, Wide<T>* dweight) override;

  void norm_forward(const NormOf<T>& norm, const SumBefore<T>& before, T* y) override;
  void norm_backward(const NormOf<T>& norm, const T* dy, const T* around, T* dx, Wide<T>* dweight,
                     Wide<T>* dbias) override;

  void activation_forward(Activation kind, bool gated, const T* x, T* y, std::int64_t rows,
                          std::int64_t width) override;
  void activation_backward(Activation kind, bool gated, const T* x, const T* dy, T* dx,
                           std::int64_t rows, std::int64_t width) override;
  void add_bias(T* x, const T* bias, std::int64_t rows, std::int64_t width) override;
  void bias_gradient(Rows<T> dy, Wide<T>* dbias) override;
  void add(T* x, const T* y, std::int64_t count) override;
  void copy(const T* from, T* to, std::int64_t count) override;

  void add_positions(T* x, const T* positions, std::int64_t rows, int samples,
                     std::int64_t width) override;
  void position_gradient(Rows<T> dy, int samples, Wide<T>* dpositions) override;
  void rotate(const AttentionShape& shape, const RotaryFrequencies& frequencies, T* qkv,
              int direction) override;

  void attention_forward(const AttentionShape& shape, const T* qkv, T* out,
                         Wide<T>* log_sum) override;
  void attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                          const Wide<T>* log_sum, const T* dout, T* dqkv) override;

  void embedding_forward(const std::int32_t* tokens, const T* weight, T* y, std::int64_t rows,
                         std::int64_t width, std::int64_t first, std::int64_t count) override;
  void embedding_backward(const std::int32_t* tokens, Rows<T> dy, Wide<T>* dweight,
                          std::int64_t first, std::int64_t count) override;

  void logits_partials(const Logits<T>& logits, Wide<T>* max, Wide<T>* sums) override;
  void rescale_sums(const Wide<T>* part_max, const Wide<T>* max, Wide<T>* sums,
                    std::int64_t rows) override;
  void add_losses(const Wide<T>* max, const Wide<T>* sums, double* total,
                  std::int64_t rows) override;
  void logits_gradient(const Logits<T>& logits, const Wide<T>* max, const Wide<T>* sums,
                       double scale) override;

  void add_gradients(Wide<T>* x, const Wide<T>* y, std::int64_t count) override;
  void copy_wide(const Wide<T>* from, Wide<T>* to, std::int64_t count) override;
  void widen(const T* from, Wide<T>* to, std::int64_t count) override;
  void sum_of_squares(const Wide<T>* x, std::int64_t count, double* total) override;
  void clip_scale(const double* squares, double most, Wide<T>* scale) override;
  void adam(const AdamStep& step, const Wide<T>* scale, const Adam<T>& states) override;

 private:
  struct Spent {
    Within part;
    Seconds since;
    Seconds without_core;  ///< of the thread, until then
    Seconds nested;        ///< of parts in between
    Seconds peers;         ///< waited for other ranks
  };
  [[nodiscard]] Seconds& at(Within part) { return within_[static_cast<std::size_t>(part)]; }

  Seconds without_core_;  ///< of the thread, until the instruction began; from then on less what it
                          ///< was without a core in communication
  std::vector<Spent> open_;
  WithinTimes within_{};
};

}  // namespace echelon
