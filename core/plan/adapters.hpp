// Adapters: low-rank additions to frozen matrices (LoRA), the only parameters that are trained.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "core/model/model.hpp"
#include "core/plan/module_set.hpp"

namespace echelon {

/// Matrices of a layer that get an adapter, as Megatron-Bridge names them (067f987d,
/// src/megatron/bridge/peft/lora.py, target_modules).
enum class AdapterTarget : std::uint8_t {
  linear_qkv,   ///< projections into the heads (PEFT: q_proj, k_proj, v_proj)
  linear_proj,  ///< attention's output projection (o_proj)
  linear_fc1,   ///< the MLP's gate and up projection (gate_proj, up_proj)
  linear_fc2,   ///< the MLP's down projection (down_proj)
};

inline constexpr std::array kAdapterTargets = {
    AdapterTarget::linear_qkv, AdapterTarget::linear_proj, AdapterTarget::linear_fc1,
    AdapterTarget::linear_fc2};

[[nodiscard]] std::string_view name_of(AdapterTarget target);
[[nodiscard]] constexpr std::span<const AdapterTarget> modules_of(AdapterTarget) {
  return kAdapterTargets;
}

using AdapterTargets = ModuleSet<AdapterTarget>;

/// LoRA (arXiv 2106.09685): a target's product y = W·x becomes W·x + (α/r)·B·A·x, A of r × in and
/// B of out × r parameters. All other parameters are frozen: they have no gradients and no states.
struct Adapters {
  int rank = 0;  ///< r
  AdapterTargets targets;

  /// As --lora takes it: "16:linear_qkv,linear_proj".
  [[nodiscard]] std::string text() const;
  bool operator==(const Adapters&) const = default;
};

/// Parameters of all adapters: r·(in + out) for each target of each layer. Queries, keys and values
/// are one matrix, and so are gate and up, unless `each_module` has an adapter of its own (PEFT on
/// transformers' linear modules): then r·in for each. Of a model whose layers all have attention,
/// and MLPs where those are targets.
[[nodiscard]] std::int64_t adapter_parameters(const ModelSpec& model, const Adapters& adapters,
                                              bool each_module);

/// "RANK" or "RANK:TARGET,...". Without targets: those of `unnamed`. An error names `where`, the
/// part that is wrong and what is allowed.
[[nodiscard]] Result<Adapters> parse_adapters(std::string_view text, const std::string& where,
                                              AdapterTargets unnamed);

}  // namespace echelon
