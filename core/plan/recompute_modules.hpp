// RecomputeModules: the parts of a layer that selective recomputation names.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/result.hpp"
#include "core/plan/module_set.hpp"

namespace echelon {

/// A part of a layer as Megatron-LM's --recompute-modules names it. Of core_attn, shared_experts,
/// mlp and moe the backward repeats the whole part from its inputs; of layernorm, mla_up_proj and
/// moe_act the output alone is dropped once it was used, and made again.
/// Source: Megatron-LM core_v0.16.1, core/transformer/transformer_config.py, recompute_modules, and
/// core/tensor_parallel/random.py, CheckpointWithoutOutput.
enum class RecomputeModule : std::uint8_t {
  core_attn,       ///< scores to context
  layernorm,       ///< norms that are kernels of their own
  mla_up_proj,     ///< latent attention: up projections and rotation
  moe_act,         ///< activation of the routed experts
  shared_experts,  ///< the shared expert
  mlp,             ///< MLP of a dense layer
  moe,             ///< router, exchange, routed and shared experts
};

inline constexpr std::array kRecomputeModules = {
    RecomputeModule::core_attn, RecomputeModule::layernorm,      RecomputeModule::mla_up_proj,
    RecomputeModule::moe_act,   RecomputeModule::shared_experts, RecomputeModule::mlp,
    RecomputeModule::moe};

[[nodiscard]] std::string_view name_of(RecomputeModule module);
[[nodiscard]] constexpr std::span<const RecomputeModule> modules_of(RecomputeModule) {
  return kRecomputeModules;
}

/// A set of them. Empty: the framework's own selective recomputation.
using RecomputeModules = ModuleSet<RecomputeModule>;

/// The disjoint parts that they stand for: core_attn for none, and moe without what it holds.
[[nodiscard]] RecomputeModules disjoint_parts(RecomputeModules modules);

/// Names with commas between them. An error names the module that is none, and all that are.
[[nodiscard]] Result<RecomputeModules> parse_recompute_modules(std::string_view text,
                                                               std::string_view where);

}  // namespace echelon
