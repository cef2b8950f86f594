#include "core/plan/recompute_modules.hpp"

namespace echelon {

std::string_view name_of(RecomputeModule module) {
  switch (module) {
    case RecomputeModule::core_attn: return "core_attn";
    case RecomputeModule::layernorm: return "layernorm";
    case RecomputeModule::mla_up_proj: return "mla_up_proj";
    case RecomputeModule::moe_act: return "moe_act";
    case RecomputeModule::shared_experts: return "shared_experts";
    case RecomputeModule::mlp: return "mlp";
    case RecomputeModule::moe: return "moe";
  }
  return "?";
}

RecomputeModules disjoint_parts(RecomputeModules modules) {
  if (modules.empty()) modules.insert(RecomputeModule::core_attn);
  if (modules.contains(RecomputeModule::moe)) {
    modules.erase(RecomputeModule::moe_act);
    modules.erase(RecomputeModule::shared_experts);
  }
  return modules;
}

Result<RecomputeModules> parse_recompute_modules(std::string_view text, std::string_view where) {
  return parse_modules<RecomputeModule>(text, where, "to recompute");
}

}  // namespace echelon
