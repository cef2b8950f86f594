// Attention by cuDNN, on one stream's GPU, if the build found its frontend and the
// library can be loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/cuda/kernels/kernels.hpp"

namespace echelon::cuda {

/// The graphs of one shape: for its forward and for its backward, which
/// plan_attention_backward() describes (core/model/attention.hpp). A deterministic one needs a
/// workspace that grows with the square of the sequence, and therefore processes parts of the
/// samples and heads.
class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;
  CudnnAttention() = default;
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// nothing: it would take more than the limit, or cuDNN does not support it.
  [[nodiscard]] virtual std::optional<AttentionBackward> backward_how() const = 0;
  [[nodiscard]] bool has_backward() const { return backward_how().has_value(); }
  /// Bytes that either direction needs, aligned to 256.
  [[nodiscard]] virtual std::int64_t workspace() const = 0;
  /// Like the kernels of the same name; operands are aligned to 16 bytes.
  virtual void forward(Stream stream, const Bfloat16* qkv, Bfloat16* out, float* log_sum,
                       void* workspace) = 0;
  virtual void backward(Stream stream, const Bfloat16* qkv, const Bfloat16* out,
                        const float* log_sum, const Bfloat16* dout, Bfloat16* dqkv,
                        void* workspace) = 0;
};

/// For the calling thread's GPU. nullptr: cuDNN is not used, for the reason in `why`.
[[nodiscard]] std::unique_ptr<CudnnAttention> cudnn_attention(const AttentionShape& shape,
                                                              std::string& why,
                                                              const AttentionMode& mode = {});
/// Version of the loaded library, "9.19.0"; empty if there is none.
[[nodiscard]] std::string cudnn_version();
/// The reason why the library would not support the shape on a GPU described in its own JSON
/// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), of this compute capability (90); empty if it would.
/// Needs no GPU.
[[nodiscard]] std::string refused_by_cudnn(const AttentionShape& shape, const std::string& gpu,
                                           int capability, const AttentionMode& mode = {});

}  // namespace echelon::cuda
