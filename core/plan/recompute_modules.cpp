#include "core/plan/recompute_modules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

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

std::string text_of(const RecomputeModules& modules) {
  std::string text;
  for (const RecomputeModule module : kRecomputeModules) {
    if (!modules.contains(module)) continue;
    text += (text.empty() ? "" : ",") + std::string(name_of(module));
  }
  return text;
}

Result<RecomputeModules> parse_recompute_modules(std::string_view text, std::string_view where) {
  std::vector<std::string> known;
  for (const RecomputeModule module : kRecomputeModules) known.emplace_back(name_of(module));
  RecomputeModules out;
  while (true) {
    const std::string_view name = text.substr(0, text.find(','));
    bool found = false;
    for (const RecomputeModule module : kRecomputeModules) {
      if (name_of(module) != name) continue;
      out.insert(module);
      found = true;
    }
    if (!found) {
      return input_error(std::string(where), "unknown module to recompute " + in_quotes(name),
                         fmt::format("a list of {}", fmt::join(known, ", ")),
                         did_you_mean(name, known));
    }
    if (name.size() == text.size()) return out;
    text.remove_prefix(name.size() + 1);
  }
}

}  // namespace echelon
