// Megatron-LM's models whose layers have one part each: a letter for each layer.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "interop/configs/document.hpp"

namespace echelon {

/// "M-M*-|M-M-/*-": M Mamba-2, * attention, - MLP, E experts; | between chunks of the pipeline, /
/// before the layers of each prediction module.
struct HybridPattern {
  std::string letters;  ///< of the layers
  int modules = 0;      ///< prediction modules
};

/// Source: Megatron-LM d98e8a64, megatron/core/models/hybrid/hybrid_layer_allocation.py,
/// parse_hybrid_pattern. Errors also name layers and modules that it has and that have no price.
[[nodiscard]] Result<HybridPattern> parse_hybrid_pattern(std::string_view text,
                                                         std::string_view where);
/// Whether the layers together have a price: attention, and MLPs or experts.
[[nodiscard]] Status check_priced_letters(std::string_view letters, std::string_view where);

/// The layers that --hybrid-attention-ratio and --hybrid-mlp-ratio allocate. Source: the same file,
/// pattern_from_ratios, and core_v0.16.1, megatron/core/ssm/mamba_hybrid_layer_allocation.py,
/// _allocate_auto. Ratios ≥ 0, in sum at most 1. Checked by: tests/interop/configs/hybrid_test.cpp.
[[nodiscard]] std::string pattern_of_ratios(int layers, double attention, double mlp);

/// Whether Megatron-LM's options ask for layers of one part each, by a pattern or in another way.
[[nodiscard]] bool states_hybrid(const ConfigDocument& options);

inline constexpr int kMostPatternLayers = 100'000;

}  // namespace echelon
