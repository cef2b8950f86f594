// Modules of transformers' models that adapters are trained on, as PEFT's target_modules names
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/adapters.hpp"
#include "interop/configs/document.hpp"

namespace echelon {

inline const AdapterTargets kAllAdapterTargets = {
    AdapterTarget::linear_qkv, AdapterTarget::linear_proj, AdapterTarget::linear_fc1,
    AdapterTarget::linear_fc2};

/// The last parts of the modules' names: q_proj and v_proj of "q_proj v_proj", of ["q_proj",
/// "self_attn.v_proj"] and of the pattern "model.layers.[\\d]+.self_attn.(q|v)_proj". A part before
/// them that leaves modules out, as "layers.3." or in a mixture of experts "mlp.", stays.
[[nodiscard]] std::vector<std::string> adapted_modules(const ConfigEntry& entry,
                                                       const ModelSpec& model);
/// Nothing where a module is not known.
[[nodiscard]] std::optional<AdapterTargets> adapter_targets(const ConfigEntry& entry,
                                                            const ModelSpec& model);

}  // namespace echelon
