// Attention by cuDNN, on one stream's GPU, where the build found its frontend.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/cuda/kernels/kernels.hpp"

namespace echelon::cuda {

/// What is built for one shape: graphs for its forward and for its backward, which is
/// deterministic. For that, cuDNN works in memory that grows with the sequence squared; so the
/// backward goes over parts of the samples and heads, of 256 MiB where that is possible.
class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;
  CudnnAttention() = default;
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// False: the smallest part would take more than 1 GiB, or cuDNN does not do it.
  [[nodiscard]] virtual bool has_backward() const = 0;
  /// Bytes that either direction needs, aligned to 256.
  [[nodiscard]] virtual std::int64_t workspace() const = 0;
  /// As the kernels of the same name; operands are aligned to 16 bytes.
  virtual void forward(Stream stream, const Bfloat16* qkv, Bfloat16* out, float* log_sum,
                       void* workspace) = 0;
  virtual void backward(Stream stream, const Bfloat16* qkv, const Bfloat16* out,
                        const float* log_sum, const Bfloat16* dout, Bfloat16* dqkv,
                        void* workspace) = 0;
};

inline constexpr Bytes kBackwardWorkspace = 256_MiB;  ///< for parts of more than one head

/// For the calling thread's GPU. nullptr: it is not done by cuDNN, for the reason in `why`.
/// `backward_workspace`: what the backward's parts are chosen for (largest_part()).
[[nodiscard]] std::unique_ptr<CudnnAttention> cudnn_attention(
    const AttentionShape& shape, std::string& why, Bytes backward_workspace = kBackwardWorkspace);
/// "9.19.0", of the library that is there; empty: none was built in.
[[nodiscard]] std::string cudnn_version();
/// Why the library would not take the shape on a GPU that it is told of, in its own JSON
/// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), of this compute capability (90); empty: it would.
/// No GPU is asked.
[[nodiscard]] std::string refused_by_cudnn(const AttentionShape& shape, const std::string& gpu,
                                           int capability);

}  // namespace echelon::cuda
