// Whose code computes a layer between its products and attention.
#pragma once

#include <string_view>

#include "core/base/result.hpp"

namespace echelon {

/// What computes norms, rotation, activations, residuals and the loss.
enum class LayerCode {
  fused,         ///< a kernel each: the framework's own, or torch.compile's
  liger,         ///< modules of transformers with Liger's kernels for all but experts
  transformers,  ///< modules of transformers, operation by operation
};
inline constexpr const char* kLayerCodes = "fused liger transformers";
[[nodiscard]] std::string_view name_of(LayerCode code);
/// By its name; `where` names the flag or file that gives it.
[[nodiscard]] Result<LayerCode> parse_layer_code(std::string_view text, std::string_view where);

}  // namespace echelon
