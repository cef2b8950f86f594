// Attention on one GPU: by cuDNN if it is built in and supports the shape, else by our kernels.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "runtime/cuda/attention/cudnn_attention.hpp"
#include "runtime/cuda/kernels/kernels.hpp"

namespace echelon::cuda {

/// On a GPU with this much memory: deterministic by ECHELON_DETERMINISTIC=1 alone.
[[nodiscard]] AttentionMode chosen_attention(Bytes memory);

/// The two may alternate: each can use the forward results of the other in the backward.
class Attention {
 public:
  /// Chooses, on the calling thread's GPU, before the shape is computed there, and has cuDNN
  /// compute it once on operands that are freed again: a kernel that is loaded by its first launch
  /// within a step may wait for another rank's. ECHELON_CUDNN=never, or no memory for those: our
  /// kernels. ECHELON_DETERMINISTIC=1: the same bits in every run. `by_blocks`: keys come block by
  /// block, which only our kernels take in.
  void prepare(const AttentionShape& shape, Stream stream, bool by_blocks = false);
  /// Bytes that the kernels of a prepared shape need in addition to their operands.
  [[nodiscard]] std::int64_t workspace(const AttentionShape& shape) const;
  void forward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv, Bfloat16* out,
               float* log_sum, void* workspace) const;
  void backward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                const Bfloat16* out, const float* log_sum, const Bfloat16* dout, Bfloat16* dqkv,
                void* workspace) const;
  /// Calibration::attention_parts of the prepared shapes.
  [[nodiscard]] Bytes parts() const;
  /// Implementation of the shape prepared last: "cuDNN 9.19.0, deterministic backward", "Echelon's
  /// kernels (…)".
  [[nodiscard]] const std::string& by() const { return by_; }

 private:
  /// nullptr: our kernels.
  [[nodiscard]] CudnnAttention* cudnn(const AttentionShape& shape) const;

  /// False: its operands do not fit.
  [[nodiscard]] bool try_out(const AttentionShape& shape, Stream stream) const;

  std::map<AttentionShape, std::unique_ptr<CudnnAttention>> cudnn_;
  std::string by_;
};

}  // namespace echelon::cuda
