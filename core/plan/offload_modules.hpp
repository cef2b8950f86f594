// OffloadModules: the parts of a layer whose inputs wait for the backward in host memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/plan/module_set.hpp"

namespace echelon {

/// A part of a layer as Megatron-LM's --offload-modules names it: what it saves for its backward is
/// copied to host memory behind its forward and back before its backward, on streams of their own.
/// Source: Megatron-LM d98e8a64, docs/user-guide/features/fine_grained_activation_offloading.md.
enum class OffloadModule : std::uint8_t {
  attn_norm,   ///< norm before attention, where it is a kernel of its own
  qkv_linear,  ///< projections into the heads, with a norm that is fused into them
  core_attn,   ///< queries, keys and values
  attn_proj,   ///< output projection: attention's output; needs core_attn
  mlp_norm,    ///< norm before the MLP, where it is a kernel of its own
  expert_fc1,  ///< first projection of the routed experts: their tokens
  moe_act,     ///< activation of the routed experts
};

inline constexpr std::array kOffloadModules = {OffloadModule::attn_norm, OffloadModule::qkv_linear,
                                               OffloadModule::core_attn, OffloadModule::attn_proj,
                                               OffloadModule::mlp_norm,  OffloadModule::expert_fc1,
                                               OffloadModule::moe_act};

[[nodiscard]] std::string_view name_of(OffloadModule module);
[[nodiscard]] constexpr std::span<const OffloadModule> modules_of(OffloadModule) {
  return kOffloadModules;
}

/// A set of them. Empty: all activations stay on the GPU.
using OffloadModules = ModuleSet<OffloadModule>;

/// Names with commas between them.
[[nodiscard]] Result<OffloadModules> parse_offload_modules(std::string_view text,
                                                           std::string_view where);

}  // namespace echelon
