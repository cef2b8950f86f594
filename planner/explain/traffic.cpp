#include "planner/explain/traffic.hpp"

#include <algorithm>

#include "costmodel/collectives/expert_exchange.hpp"

namespace echelon {

namespace {

/// What one longest stage does in a step.
class LongestStage {
 public:
  LongestStage(const PlanRequest& request, const ParallelPlan& plan)
      : request_(request),
        plan_(plan),
        microbatches_(static_cast<double>(plan.microbatches_rounded_up(request.job.global_batch))),
        layers_(*std::max_element(plan.layers_per_stage.begin(), plan.layers_per_stage.end())),
        kind_(2 * request.model.moe_layers() > request.model.layers ? LayerKind::moe
                                                                    : LayerKind::dense) {}

  /// tp, cp, ep or etp.
  [[nodiscard]] std::vector<Traffic> of_layers(Axis axis) const {
    double again = 0;  // share of the layers whose forward runs twice
    if (plan_.recompute == Recompute::full || plan_.recompute == Recompute::mixed) {
      again =
          *std::max_element(plan_.recompute_layers.begin(), plan_.recompute_layers.end()) / layers_;
    }
    const bool experts = axis == Axis::ep || axis == Axis::etp;
    const ModelSpec& model = request_.model;
    std::vector<Traffic> out;
    for (const TokenMixer mixer : kTokenMixers) {
      const double share = static_cast<double>(model.layers_with(mixer)) / model.layers;
      if (share == 0 || (experts && !model.has_mlp(mixer))) continue;
      const double passes = share * microbatches_ * (experts ? moe_layers() : layers_);
      const OperatorList operators =
          layer_operators(model, request_.job, request_.framework, sharding_of(plan_),
                          experts ? LayerKind::moe : kind_, mixer);
      for (const Operator& op : operators.view()) {
        if (op.axis != axis) continue;
        const auto add = [&](CollectiveKind kind, double times) {
          if (kind != CollectiveKind::none) out.push_back({kind, times * passes, op.payload});
        };
        const bool repeated = plan_.recompute == Recompute::selective &&
                              op.repeated_by.intersects(disjoint_parts(plan_.recompute_modules));
        add(op.forward_collective, 1 + (op.once ? 0 : repeated ? 1 : again));
        add(op.backward_collective, 1);
      }
    }
    return out;
  }

  /// dp: everything but the routed experts.
  [[nodiscard]] std::vector<Traffic> of_data() const {
    const ShardingCosts costs = sharding_costs();
    const double adapters = layers_ * costs.of(kind_).adapters;
    const double all = layers_ * costs.of(kind_).parameters + costs.embedding_parameters;
    return of_parameters(all, request_.job.adapters ? adapters : all,
                         layers_ * costs.of(kind_).quantized);
  }

  /// expert_dp: the routed experts.
  [[nodiscard]] std::vector<Traffic> of_experts() const {
    const double all = moe_layers() * sharding_costs().moe.experts;
    return of_parameters(all, request_.job.adapters ? 0.0 : all, 0);
  }

  [[nodiscard]] std::vector<Traffic> of_pipeline() const {
    const Bytes whole = sharding_costs().layer_input;
    const Bytes message = request_.framework.scatters(plan_) ? whole / plan_.tp : whole;
    return {{CollectiveKind::send_recv, 2 * microbatches_ * plan_.vpp / plan_.copies(), message}};
  }

 private:
  /// Layers of the stage whose costs are those of layers with experts, as many as the model has on
  /// average.
  [[nodiscard]] double moe_layers() const {
    return layers_ * (static_cast<double>(request_.model.moe_layers()) / request_.model.layers);
  }

  /// `quantized` of the parameters are gathered packed.
  [[nodiscard]] std::vector<Traffic> of_parameters(double parameters, double trained,
                                                   double quantized) const {
    const PrecisionRecipe& recipe = request_.job.precision;
    const Bytes gradients{trained * recipe.reduced_gradient};
    const double packed = plan_.zero == 3 ? quantized : 0;
    const Bytes weights{((plan_.zero == 3 ? parameters : trained) - packed) *
                            recipe.gathered_weight +
                        packed * QuantizedWeights::kPayload};
    if (plan_.zero == 0) return {{CollectiveKind::all_reduce, 1, gradients}};
    const double reductions = plan_.zero >= 2 ? microbatches_ : 1;
    const double gathers = plan_.zero == 3 ? 2 * microbatches_ : 1;
    return {{CollectiveKind::reduce_scatter, reductions, gradients},
            {CollectiveKind::all_gather, gathers, weights}};
  }

  [[nodiscard]] ShardingCosts sharding_costs() const {
    return CostModel(request_.model, request_.job, request_.cluster, request_.framework,
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

RankGroup traffic_group(const ProcessGrid& grid, Axis axis) {
  return axis == Axis::dp ? grid.data_group() : grid.group(axis);
}

std::vector<Traffic> traffic_of(const PlanRequest& request, const ParallelPlan& plan, Axis axis) {
  if (traffic_group(ProcessGrid(plan), axis).ranks == 1) return {};
  const LongestStage stage(request, plan);
  const bool experts = request.model.moe.experts > 0;
  switch (axis) {
    case Axis::tp:
    case Axis::cp: return stage.of_layers(axis);
    case Axis::ep:
    case Axis::etp: return experts ? stage.of_layers(axis) : std::vector<Traffic>{};
    case Axis::dp: return stage.of_data();
    case Axis::pp: return stage.of_pipeline();
    case Axis::expert_dp: return experts ? stage.of_experts() : std::vector<Traffic>{};
  }
  return {};
}

std::vector<LinkLoad> link_loads(const PlanRequest& request, const ParallelPlan& plan) {
  std::vector<LinkLoad> out;
  const ProcessGrid grid(plan);
  for (const Axis axis : kAxes) {
    const std::vector<Traffic> traffic = traffic_of(request, plan, axis);
    if (traffic.empty()) continue;
    const GroupNetwork net = request.cluster.group(traffic_group(grid, axis));
    const double n = net.ranks;
    const double members = net.ranks_per_domain;
    const double groups = net.sharing_groups;
    LinkLoad load{axis, net.ranks, net.domains, {}, {}};
    for (const Traffic& t : traffic) {
      const Bytes sent = t.times * t.payload;
      if (t.kind == CollectiveKind::all_to_all) {
        // Of k copies of a token those that its dispatcher sends; of heads (Ulysses) all.
        const bool experts = axis == Axis::ep;
        const TokenCopies copies =
            experts ? copies_per_token(plan.dispatcher, request.model.moe, net.ranks, net.domains)
                    : TokenCopies{(members - 1) / n, (n - members) / n};
        const double k = experts ? request.model.moe.experts_per_token : 1.0;
        load.per_gpu += sent * (copies.in_domain / k);
        load.per_domain += sent * (groups * members * copies.between / k);
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
