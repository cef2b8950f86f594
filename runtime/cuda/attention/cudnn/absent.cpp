// For builds without cuDNN or without its frontend.
#include "runtime/cuda/attention/cudnn_attention.hpp"

namespace echelon::cuda {

std::unique_ptr<CudnnAttention> cudnn_attention(const AttentionShape&, std::string& why,
                                                const AttentionMode&) {
  why = "built without cuDNN's frontend";
  return nullptr;
}
std::string cudnn_version() { return ""; }
std::string refused_by_cudnn(const AttentionShape&, const std::string&, int, const AttentionMode&) {
  return "built without cuDNN's frontend";
}

}  // namespace echelon::cuda
