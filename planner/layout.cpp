// Where the axes of a plan lie on the network, and what it would cost if they lay elsewhere.
#include <algorithm>
#include <cmath>

#include "costmodel/collectives.hpp"
#include "planner/explain.hpp"

namespace echelon {
namespace {

/// The traffic of one axis, as a function of the group it runs on.
struct Traffic {
  Bytes sent;
  Seconds time;
};

class Layout {
 public:
  Layout(const PlanRequest& request, const ParallelPlan& plan)
      : request_(request),
        plan_(plan),
        pricer_(request.model, request.job, request.cluster, request.stack, request.calibration),
        grid_(plan),
        costs_(pricer_.cut_costs(cut_of(plan))),
        microbatches_(static_cast<double>(plan.microbatches_rounded_up(request.job.global_batch))),
        layers_(*std::max_element(plan.layers_per_stage.begin(), plan.layers_per_stage.end())),
        kind_(2 * request.model.moe_layers() > request.model.layers ? LayerKind::moe
                                                                    : LayerKind::dense) {}

  [[nodiscard]] AxisLayout tensor() const {
    const int outermost = request_.cluster.gpus() / plan_.tp;
    return axis(Axis::tp, plan_.tp, grid_.stride(Axis::tp), outermost,
                [this](const GroupLinks& links) { return traffic_of(CollectiveGroup::tp, links); });
  }
  [[nodiscard]] AxisLayout context() const {
    const int outermost = request_.cluster.gpus() / plan_.cp;
    return axis(Axis::cp, plan_.cp, grid_.stride(Axis::cp), outermost,
                [this](const GroupLinks& links) { return traffic_of(CollectiveGroup::cp, links); });
  }
  [[nodiscard]] AxisLayout data() const {
    return axis(Axis::dp, plan_.dp, grid_.stride(Axis::dp), 1,
                [this](const GroupLinks& links) { return data_traffic(links); });
  }
  [[nodiscard]] AxisLayout pipeline() const {
    return axis(Axis::pp, plan_.pp, grid_.stride(Axis::pp), 1,
                [this](const GroupLinks& links) { return pipeline_traffic(links); });
  }

 private:
  template <class Price>
  [[nodiscard]] AxisLayout axis(Axis axis, int ranks, int stride, int other_stride,
                                Price price) const {
    const GroupLinks placed = apply(request_.cluster.group(ranks, stride), request_.calibration);
    const GroupLinks other =
        apply(request_.cluster.group(ranks, other_stride), request_.calibration);
    const Traffic traffic = price(placed);
    return {axis,         ranks,         placed.domains,   traffic.sent,
            traffic.time, other.domains, price(other).time};
  }
  [[nodiscard]] Traffic traffic_of(CollectiveGroup group, const GroupLinks& links) const;
  [[nodiscard]] Traffic data_traffic(const GroupLinks& links) const;
  [[nodiscard]] Traffic pipeline_traffic(const GroupLinks& links) const;

  const PlanRequest& request_;
  const ParallelPlan& plan_;
  Pricer pricer_;
  ProcessGrid grid_;
  CutCosts costs_;
  double microbatches_;
  double layers_;   ///< of the longest stage
  LayerKind kind_;  ///< of most layers
};

/// Forward and backward collectives of every layer and microbatch; a recomputed forward's again.
Traffic Layout::traffic_of(CollectiveGroup group, const GroupLinks& links) const {
  double again = 0;  // share of the layers whose forward runs twice
  if (plan_.recompute == Recompute::full || plan_.recompute == Recompute::mixed) {
    again =
        *std::max_element(plan_.recompute_layers.begin(), plan_.recompute_layers.end()) / layers_;
  }
  Traffic out;
  const OperatorList operators =
      layer_operators(request_.model, request_.job, request_.stack, cut_of(plan_), kind_);
  const double passes = microbatches_ * layers_;
  for (const Operator& op : operators.view()) {
    if (op.group != group) continue;
    const auto add = [&](CollectiveKind kind, double times) {
      if (kind == CollectiveKind::none) return;
      out.sent += times * passes * op.payload;
      out.time += times * passes * collective_time(kind, op.payload, links);
    };
    add(op.forward_collective, 1 + again);
    add(op.backward_collective, 1);
  }
  return out;
}

/// ZeRO 0 all-reduces once per step; 1 reduces and gathers once; 2 reduces and 3 also gathers twice
/// in every microbatch.
Traffic Layout::data_traffic(const GroupLinks& links) const {
  const PrecisionRecipe& recipe = request_.job.precision;
  const double parameters = layers_ * costs_.of(kind_).parameters + costs_.embedding_parameters;
  const Bytes gradients{parameters * recipe.reduced_gradient};
  const Bytes weights{parameters * recipe.gathered_weight};
  if (plan_.zero == 0) return {gradients, all_reduce(gradients, links)};
  const double reductions = plan_.zero >= 2 ? microbatches_ : 1;
  const double gathers = plan_.zero == 3 ? 2 * microbatches_ : 1;
  return {reductions * gradients + gathers * weights,
          reductions * reduce_scatter(gradients, links) + gathers * all_gather(weights, links)};
}

/// One message in each direction per microbatch and chunk.
Traffic Layout::pipeline_traffic(const GroupLinks& links) const {
  const double messages = 2 * microbatches_ * plan_.vpp;
  return {messages * costs_.layer_input, messages * send_receive(costs_.layer_input, links)};
}

}  // namespace

std::vector<AxisLayout> layout_of(const PlanRequest& request, const Candidate& candidate) {
  const Layout layout(request, candidate.plan);
  std::vector<AxisLayout> out;
  if (candidate.plan.tp > 1) out.push_back(layout.tensor());
  if (candidate.plan.cp > 1) out.push_back(layout.context());
  if (candidate.plan.dp > 1) out.push_back(layout.data());
  if (candidate.plan.pp > 1) out.push_back(layout.pipeline());
  return out;
}

}  // namespace echelon
