#include "core/framework/flash_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/framework/framework.hpp"
#include "core/plan/job.hpp"

namespace echelon {

namespace {

/// Of queries, keys or values: narrower ones are padded where they differ.
/// Source: TransformerEngine d0067d0d, pytorch/attention/dot_product_attention/utils.py:926.
int widest_head(const ModelSpec& model) {
  return std::max({model.head_dim, model.latent() ? model.mla.v_head_dim : 0,
                   model.global.layers > 0 ? model.global.head_dim : 0});
}

}  // namespace

std::string why_no_flash(const Framework& framework, double capability, Dtype compute,
                         const ModelSpec& model) {
  if (model.sparse()) return {};
  const int head = widest_head(model);
  double widest_number = 0;
  double first = std::numeric_limits<double>::infinity();
  int multiple = 0;
  int widest = 0;
  for (const FlashKernel& kernel : framework.flash_kernels) {
    widest_number = std::max(widest_number, kernel.widest_number);
    if (activation_width(compute) > kernel.widest_number) continue;
    first = std::min(first, kernel.from);
    if (capability > 0 && (capability < kernel.from || capability >= kernel.below)) continue;
    multiple = kernel.head_multiple;
    if (head % multiple == 0) widest = std::max(widest, kernel.widest_head);
  }
  if (activation_width(compute) > widest_number) {
    return fmt::format("none in {}: its kernels take {}bf16 and fp16", name_of(compute),
                       widest_number > 2 ? "fp32, " : "");
  }
  if (multiple == 0) {
    return fmt::format("none on compute capability {:.1f}: its kernels begin with {:.1f}",
                       capability, first);
  }
  if (head <= widest) return {};
  if (widest == 0) {
    return fmt::format("none for heads of {}: its kernels take multiples of {}", head, multiple);
  }
  const std::string there =
      capability > 0 ? fmt::format(" on compute capability {:.1f}", capability) : "";
  return fmt::format("none for heads of {}{}: its kernels take up to {}", head, there, widest);
}

}  // namespace echelon
