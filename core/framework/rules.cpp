#include "core/framework/rules.hpp"

#include <algorithm>

#include "core/framework/framework.hpp"

namespace echelon {

std::string_view name_of(RemarkKind kind) {
  return kind == RemarkKind::needs ? "requires" : "warns";
}

std::vector<std::string_view> graphed_parts(const ModelSpec& model, const ParallelPlan& plan) {
  std::vector<std::string_view> parts = {"attn"};
  if (model.ssm.layers > 0) parts.emplace_back("mamba");
  if (model.moe_layers() < model.layers && !plan.overlap_ep) parts.emplace_back("mlp");
  if (model.moe.experts > 0) parts.insert(parts.end(), {"moe_router", "moe_preprocess"});
  return parts;
}

bool replicates_kv_heads(const ModelSpec& model, const ParallelPlan& plan) {
  return model.kv_heads % plan.tp != 0;
}

const FrameworkRule* broken_rule(const Framework& framework, RulePart part, const ModelSpec& model,
                                 const PrecisionRecipe& precision, const ParallelPlan& plan) {
  const auto found = std::ranges::find_if(framework.rules, [&](const FrameworkRule& rule) {
    const bool in_question = rule.part == part && (rule.in == nullptr || rule.in(precision));
    return in_question && rule.broken(model, plan);
  });
  return found == framework.rules.end() ? nullptr : &*found;
}

std::vector<FrameworkRemark> remarks(const Framework& framework, const ModelSpec& model,
                                     const ParallelPlan& plan, const PrecisionRecipe& precision,
                                     bool flash_attention, double compute_capability) {
  constexpr double kBlackwell = 10;
  std::vector<FrameworkRemark> out;
  for (const RemarkRule& rule : framework.remark_rules) {
    if (rule.of_flash && !flash_attention) continue;
    if (rule.before_blackwell && compute_capability >= kBlackwell) continue;
    std::string text =
        rule.of_precision != nullptr ? rule.of_precision(precision, plan) : rule.text(model, plan);
    if (!text.empty()) out.push_back({rule.kind, std::move(text), rule.source, rule.environment});
  }
  return out;
}

}  // namespace echelon
