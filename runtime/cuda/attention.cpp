#include "runtime/cuda/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace echelon::cuda {
namespace {

bool cudnn_is_wanted() {
  const char* given = std::getenv("ECHELON_CUDNN");
  return given == nullptr || std::string_view(given) != "never";
}

/// cuDNN wants operands aligned to 16 bytes; ours take any.
bool are_aligned(std::initializer_list<const void*> operands) {
  return std::all_of(operands.begin(), operands.end(), [](const void* each) {
    return reinterpret_cast<std::uintptr_t>(each) % 16 == 0;
  });
}

}  // namespace

void Attention::prepare(const AttentionShape& shape) {
  std::string why = "ECHELON_CUDNN=never";
  std::unique_ptr<CudnnAttention>& cudnn = cudnn_[shape];
  if (cudnn_is_wanted() && !cudnn) cudnn = cudnn_attention(shape, why);
  if (!cudnn) {
    by_ = fmt::format("Echelon's kernels ({})", why);
  } else if (cudnn->has_backward()) {
    by_ = "cuDNN " + cudnn_version();
  } else {
    by_ = fmt::format("cuDNN {} forward, Echelon's kernels backward", cudnn_version());
  }
}

CudnnAttention* Attention::cudnn(const AttentionShape& shape) const {
  return cudnn_.at(shape).get();
}

std::int64_t Attention::workspace(const AttentionShape& shape) const {
  const auto ours = attention_backward_workspace(shape) * static_cast<std::int64_t>(sizeof(float));
  const CudnnAttention* by = cudnn(shape);
  return by == nullptr ? ours : std::max(ours, by->workspace());
}

void Attention::forward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                        Bfloat16* out, float* log_sum, void* workspace) const {
  CudnnAttention* by = cudnn(shape);
  if (by != nullptr && are_aligned({qkv, out, log_sum})) {
    by->forward(stream, qkv, out, log_sum, workspace);
  } else {
    attention_forward(stream, shape, qkv, out, log_sum);
  }
}

void Attention::backward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                         const Bfloat16* out, const float* log_sum, const Bfloat16* dout,
                         Bfloat16* dqkv, void* workspace) const {
  CudnnAttention* by = cudnn(shape);
  if (by != nullptr && by->has_backward() && are_aligned({qkv, out, log_sum, dout, dqkv})) {
    by->backward(stream, qkv, out, log_sum, dout, dqkv, workspace);
  } else {
    attention_backward(stream, shape, qkv, out, log_sum, dout, dqkv,
                       static_cast<float*>(workspace));
  }
}

}  // namespace echelon::cuda
