// Attention on one GPU: by cuDNN where it is built in and takes a shape, by our kernels elsewhere.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "runtime/cuda/cudnn_attention.hpp"
#include "runtime/cuda/kernels.hpp"

namespace echelon::cuda {

/// The two may take turns: what one keeps for the backward serves the other.
class Attention {
 public:
  /// Chooses, on the calling thread's GPU, before the shape is computed there: cuDNN loads kernels
  /// and takes memory of its own. ECHELON_CUDNN=never: our kernels.
  void prepare(const AttentionShape& shape);
  /// Bytes that the kernels of a prepared shape need beside their operands.
  [[nodiscard]] std::int64_t workspace(const AttentionShape& shape) const;
  void forward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv, Bfloat16* out,
               float* log_sum, void* workspace) const;
  void backward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                const Bfloat16* out, const float* log_sum, const Bfloat16* dout, Bfloat16* dqkv,
                void* workspace) const;
  /// Who computes what was prepared last: "cuDNN 9.19.0", "Echelon's kernels (…)".
  [[nodiscard]] const std::string& by() const { return by_; }

 private:
  /// nullptr: our kernels.
  [[nodiscard]] CudnnAttention* cudnn(const AttentionShape& shape) const;

  std::map<AttentionShape, std::unique_ptr<CudnnAttention>> cudnn_;
  std::string by_;
};

}  // namespace echelon::cuda
