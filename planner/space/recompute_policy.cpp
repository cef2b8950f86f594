#include "planner/space/recompute_policy.hpp"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

struct RatedModule {
  RecomputeModule module;
  Seconds repeated;
  Bytes freed;
  [[nodiscard]] double ratio() const { return repeated.in(kSecond) / freed.in(kByte); }
};

/// Sums over the layers of the model.
class ModelSums {
 public:
  explicit ModelSums(const CostModel& cost_model)
      : costs_(cost_model.sharding_costs(reference(cost_model))),
        moe_(cost_model.moe_before(cost_model.model().layers)),
        dense_(cost_model.model().layers - moe_),
        framework_(cost_model.framework()) {}

  [[nodiscard]] Bytes saved() const {
    return dense_ * costs_.dense.saved + moe_ * costs_.moe.saved;
  }
  [[nodiscard]] RatedModule of(RecomputeModule module) const {
    const RecomputedPart dense = selective_part(costs_.dense, framework_, {module});
    const RecomputedPart moe = selective_part(costs_.moe, framework_, {module});
    return {module, dense_ * dense.repeated.total() + moe_ * moe.repeated.total(),
            dense_ * dense.freed + moe_ * moe.freed};
  }
  [[nodiscard]] Bytes freed(const RecomputeModules& modules) const {
    return dense_ * selective_part(costs_.dense, framework_, modules).freed +
           moe_ * selective_part(costs_.moe, framework_, modules).freed;
  }
  /// Of whole layers.
  [[nodiscard]] double ratio() const {
    const Seconds again = dense_ * costs_.dense.forward.total() + moe_ * costs_.moe.forward.total();
    return again.in(kSecond) / (saved() - (dense_ + moe_) * costs_.layer_input).in(kByte);
  }

 private:
  static LayerSharding reference(const CostModel& cost_model) {
    LayerSharding one;
    const int experts = cost_model.model().moe.experts;
    if (experts > 0) one.ep = std::gcd(experts, cost_model.cluster().gpus_per_node());
    return one;
  }
  ShardingCosts costs_;
  int moe_, dense_;
  const Framework& framework_;
};

/// Whether the framework recomputes the module in a job of this precision, whatever else is chosen.
bool recomputes(const CostModel& cost_model, RecomputeModule module) {
  ParallelPlan alone;
  set_policy({Recompute::selective, {module}}, alone);
  const Framework& framework = cost_model.framework();
  return framework.recompute_modules.contains(module) &&
         broken_rule(framework, RulePart::recomputation, cost_model.model(),
                     cost_model.job().precision, alone) == nullptr;
}

}  // namespace

void set_policy(const RecomputePolicy& policy, ParallelPlan& plan) {
  plan.recompute = policy.kind;
  plan.recompute_modules = policy.modules;
}

std::vector<RecomputeModules> module_chain(const CostModel& cost_model) {
  constexpr double kLeastShare = 0.05;
  if (cost_model.framework().recompute_modules.empty()) return {};
  const ModelSums sums(cost_model);
  std::vector<RatedModule> rated;
  for (const RecomputeModule module : kRecomputeModules) {
    const bool core = module == RecomputeModule::core_attn;
    if (!recomputes(cost_model, module) || (core && cost_model.job().flash_attention)) continue;
    const RatedModule each = sums.of(module);
    if (each.freed > Bytes{} && each.ratio() < sums.ratio()) rated.push_back(each);
  }
  std::ranges::stable_sort(rated, {}, &RatedModule::ratio);
  std::vector<RecomputeModules> chain;
  RecomputeModules modules;
  Bytes freed;
  for (const RatedModule& each : rated) {
    modules.insert(each.module);
    modules = disjoint_parts(modules);
    const Bytes all = sums.freed(modules);
    const bool counts = all - freed >= kLeastShare * sums.saved();
    if (!counts && &each != &rated.back()) continue;
    if (all <= freed) continue;  // part of what it has
    chain.push_back(modules);
    freed = all;
  }
  return chain;
}

}  // namespace echelon
