#include "runtime/cuda/attention/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/device/resources.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon::cuda {
namespace {

/// Heads of latent attention take more shared memory than GPUs of compute capability 8.6 and 8.9
/// have. Source: CUDA C++ Programming Guide, table "Technical Specifications per Compute
/// Capability": 99 KB per block, 163 with 8.0, 227 with 9.0.
void check_shared_memory(const AttentionShape& shape, const std::string& why) {
  int device = 0;
  int most = 0;
  check(cudaGetDevice(&device), "ask for the GPU");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "ask for a property of the GPU");
  const std::int64_t needed = attention_shared_memory(shape);
  if (needed <= most) return;
  throw RunFailure(environment_error(
      "the GPU",
      fmt::format(
          "{} bytes of shared memory in a block; attention by our own kernels ({}) takes {} "
          "for heads of {} for queries and keys and of {} for values",
          most, why, needed, shape.head_dim, shape.value_dim()),
      "--backend cpu, or a GPU like A100 or H100"));
}

bool cudnn_is_wanted() { return chosen_by("ECHELON_CUDNN", {"never"}) != "never"; }

}  // namespace

AttentionMode chosen_attention(Bytes memory) {
  return {.deterministic = chosen_by("ECHELON_DETERMINISTIC", {"0", "1"}) == "1",
          .limit = attention_limit(memory)};
}

void Attention::prepare(const AttentionShape& shape, Stream stream, bool by_blocks) {
  const auto [place, is_new] = cudnn_.try_emplace(shape);
  if (!is_new) return;
  std::unique_ptr<CudnnAttention>& cudnn = place->second;
  std::string why = by_blocks ? "keys pass by in a ring" : "ECHELON_CUDNN=never";
  if (!by_blocks && cudnn_is_wanted()) {
    const DeviceMemory memory = memory_of_device();
    cudnn = cudnn_attention(shape, why, chosen_attention(memory.free + memory.used));
    if (cudnn && !try_out(shape, stream)) {
      cudnn.reset();
      why = "no memory to try cuDNN's";
    }
  }
  if (!cudnn || !cudnn->has_backward()) check_shared_memory(shape, why);
  if (!cudnn) {
    by_ = fmt::format("Echelon's kernels ({})", why);
  } else if (const auto backward = cudnn->backward_how()) {
    by_ = fmt::format(
        "cuDNN {}, {}", cudnn_version(),
        backward->deterministic ? "deterministic backward" : "backward with atomic sums");
  } else {
    by_ = fmt::format("cuDNN {} forward, Echelon's kernels backward", cudnn_version());
  }
}

bool Attention::try_out(const AttentionShape& s, Stream stream) const {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Bfloat16));
  const std::int64_t rows = s.sequence * s.samples;
  const std::int64_t sizes[] = {rows * s.qkv_stride * kWidth,
                                rows * s.out_stride * kWidth,
                                rows * s.heads * static_cast<std::int64_t>(sizeof(float)),
                                rows * s.out_stride * kWidth,
                                rows * s.qkv_stride * kWidth,
                                std::max<std::int64_t>(1, workspace(s))};
  const std::vector<DeviceBuffer> buffers = zeroed_buffers(sizes, stream);
  if (buffers.empty()) return false;
  auto* const qkv = buffers[0].as<Bfloat16>();
  auto* const out = buffers[1].as<Bfloat16>();
  auto* const log_sum = buffers[2].as<float>();
  forward(stream, s, qkv, out, log_sum, buffers[5].as<void>());
  backward(stream, s, qkv, out, log_sum, buffers[3].as<Bfloat16>(), buffers[4].as<Bfloat16>(),
           buffers[5].as<void>());
  check(cudaStreamSynchronize(stream), "try attention");
  return true;
}

CudnnAttention* Attention::cudnn(const AttentionShape& shape) const {
  return cudnn_.at(shape).get();
}

Bytes Attention::parts() const {
  const bool any = std::any_of(cudnn_.begin(), cudnn_.end(), [](const auto& each) {
    return each.second != nullptr && each.second->has_backward();
  });
  return any ? AttentionMode{}.parts : Bytes{};
}

std::int64_t Attention::workspace(const AttentionShape& shape) const {
  const auto ours = attention_backward_workspace(shape) * static_cast<std::int64_t>(sizeof(float));
  const CudnnAttention* by = cudnn(shape);
  return by == nullptr ? ours : std::max(ours, by->workspace());
}

void Attention::forward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                        Bfloat16* out, float* log_sum, void* workspace) const {
  CudnnAttention* by = cudnn(shape);  // which requires aligned operands
  if (by != nullptr && aligned(qkv, out, log_sum)) {
    by->forward(stream, qkv, out, log_sum, workspace);
  } else {
    attention_forward(stream, shape, qkv, out, log_sum);
  }
}

void Attention::backward(Stream stream, const AttentionShape& shape, const Bfloat16* qkv,
                         const Bfloat16* out, const float* log_sum, const Bfloat16* dout,
                         Bfloat16* dqkv, void* workspace) const {
  CudnnAttention* by = cudnn(shape);
  if (by != nullptr && by->has_backward() && aligned(qkv, out, log_sum, dout, dqkv)) {
    by->backward(stream, qkv, out, log_sum, dout, dqkv, workspace);
  } else {
    attention_backward(stream, shape, qkv, out, log_sum, dout, dqkv,
                       static_cast<float*>(workspace));
  }
}

}  // namespace echelon::cuda
