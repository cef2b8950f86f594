#include "planner/explain/traffic.hpp"

#include <algorithm>

#include "core/plan/process_grid.hpp"

namespace echelon {

std::string_view name_of(TrafficAxis axis) {
  switch (axis) {
    case TrafficAxis::tp: return "tp";
    case TrafficAxis::cp: return "cp";
    case TrafficAxis::ep: return "ep";
    case TrafficAxis::dp: return "dp";
    case TrafficAxis::pp: return "pp";
  }
  return "";
}

namespace {

RankGroup group_along(const ParallelPlan& plan, TrafficAxis axis) {
  const ProcessGrid grid(plan);
  switch (axis) {
    case TrafficAxis::tp: return grid.group(Axis::tp);
    case TrafficAxis::cp: return grid.group(Axis::cp);
    case TrafficAxis::ep: return grid.group(Axis::ep);
    case TrafficAxis::dp: return grid.group(Axis::dp);
    case TrafficAxis::pp: return grid.group(Axis::pp);
  }
  return {};
}

/// Work of the longest stage in a step.
class LongestStage {
 public:
  LongestStage(const PlanRequest& request, const ParallelPlan& plan)
      : request_(request),
        plan_(plan),
        microbatches_(static_cast<double>(plan.microbatches_rounded_up(request.job.global_batch))),
        layers_(*std::max_element(plan.layers_per_stage.begin(), plan.layers_per_stage.end())),
        kind_(2 * request.model.moe_layers() > request.model.layers ? LayerKind::moe
                                                                    : LayerKind::dense) {}

  [[nodiscard]] std::vector<Traffic> of_layers(CollectiveGroup group) const {
    double again = 0;  // share of the layers whose forward runs twice
    if (plan_.recompute == Recompute::full || plan_.recompute == Recompute::mixed) {
      again =
          *std::max_element(plan_.recompute_layers.begin(), plan_.recompute_layers.end()) / layers_;
    }
    const bool experts = group == CollectiveGroup::ep;
    const double share =
        experts ? static_cast<double>(request_.model.moe_layers()) / request_.model.layers : 1.0;
    const double passes = microbatches_ * layers_ * share;
    std::vector<Traffic> out;
    const OperatorList operators =
        layer_operators(request_.model, request_.job, request_.stack, sharding_of(plan_),
                        experts ? LayerKind::moe : kind_);
    for (const Operator& op : operators.view()) {
      if (op.group != group) continue;
      const auto add = [&](CollectiveKind kind, double times) {
        if (kind != CollectiveKind::none) out.push_back({kind, times * passes, op.payload});
      };
      add(op.forward_collective, 1 + again);
      add(op.backward_collective, 1);
    }
    return out;
  }

  [[nodiscard]] std::vector<Traffic> of_data() const {
    const ShardingCosts costs = sharding_costs();
    const PrecisionRecipe& recipe = request_.job.precision;
    const double parameters = layers_ * costs.of(kind_).parameters + costs.embedding_parameters;
    const Bytes gradients{parameters * recipe.reduced_gradient};
    const Bytes weights{parameters * recipe.gathered_weight};
    if (plan_.zero == 0) return {{CollectiveKind::all_reduce, 1, gradients}};
    const double reductions = plan_.zero >= 2 ? microbatches_ : 1;
    const double gathers = plan_.zero == 3 ? 2 * microbatches_ : 1;
    return {{CollectiveKind::reduce_scatter, reductions, gradients},
            {CollectiveKind::all_gather, gathers, weights}};
  }

  [[nodiscard]] std::vector<Traffic> of_pipeline() const {
    return {
        {CollectiveKind::send_recv, 2 * microbatches_ * plan_.vpp, sharding_costs().layer_input}};
  }

 private:
  [[nodiscard]] ShardingCosts sharding_costs() const {
    return CostModel(request_.model, request_.job, request_.cluster, request_.stack,
                     request_.calibration)
        .sharding_costs(plan_);
  }

  const PlanRequest& request_;
  const ParallelPlan& plan_;
  double microbatches_;
  double layers_;   ///< of the longest stage
  LayerKind kind_;  ///< of most layers
};

}  // namespace

std::vector<Traffic> traffic_of(const PlanRequest& request, const ParallelPlan& plan,
                                TrafficAxis axis) {
  if (group_along(plan, axis).ranks == 1) return {};
  const LongestStage stage(request, plan);
  switch (axis) {
    case TrafficAxis::tp: return stage.of_layers(CollectiveGroup::tp);
    case TrafficAxis::cp: return stage.of_layers(CollectiveGroup::cp);
    case TrafficAxis::ep: return stage.of_layers(CollectiveGroup::ep);
    case TrafficAxis::dp: return stage.of_data();
    case TrafficAxis::pp: return stage.of_pipeline();
  }
  return {};
}

std::vector<LinkLoad> link_loads(const PlanRequest& request, const ParallelPlan& plan) {
  std::vector<LinkLoad> out;
  for (int i = 0; i < kTrafficAxes; ++i) {
    const auto axis = static_cast<TrafficAxis>(i);
    const RankGroup group = group_along(plan, axis);
    if (group.ranks == 1) continue;
    const GroupNetwork net = request.cluster.group(group.ranks, group.stride);
    const double n = net.ranks;
    const double members = net.ranks_per_domain;
    const double groups = net.sharing_groups;
    LinkLoad load{axis, net.ranks, net.domains, {}, {}};
    for (const Traffic& t : traffic_of(request, plan, axis)) {
      const Bytes sent = t.times * t.payload;
      if (t.kind == CollectiveKind::all_to_all) {
        load.per_gpu += sent * ((members - 1) / n);
        load.per_domain += sent * (groups * members * (n - members) / n);
        continue;
      }
      const Bytes along = sent * bus_factor(t.kind, net.ranks);
      const double leaving = net.domains > 1 ? net.domains : 0;
      load.per_gpu += along * ((n - leaving) / n);
      if (net.domains > 1) load.per_domain += along * groups;
    }
    out.push_back(load);
  }
  return out;
}

}  // namespace echelon
