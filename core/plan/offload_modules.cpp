#include "core/plan/offload_modules.hpp"

namespace echelon {

std::string_view name_of(OffloadModule module) {
  switch (module) {
    case OffloadModule::attn_norm: return "attn_norm";
    case OffloadModule::qkv_linear: return "qkv_linear";
    case OffloadModule::core_attn: return "core_attn";
    case OffloadModule::attn_proj: return "attn_proj";
    case OffloadModule::mlp_norm: return "mlp_norm";
    case OffloadModule::expert_fc1: return "expert_fc1";
    case OffloadModule::moe_act: return "moe_act";
  }
  return "?";
}

Result<OffloadModules> parse_offload_modules(std::string_view text, std::string_view where) {
  return parse_modules<OffloadModule>(text, where, "to offload");
}

}  // namespace echelon
