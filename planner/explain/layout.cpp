#include "planner/explain/layout.hpp"

#include "costmodel/collectives/collectives.hpp"
#include "planner/explain/traffic.hpp"

namespace echelon {
namespace {

/// `traffic`, nothing hidden, on a group.
Seconds alone(const std::vector<Traffic>& traffic, const GroupLinks& links) {
  Seconds time;
  for (const Traffic& t : traffic) time += t.times * collective_time(t.kind, t.payload, links);
  return time;
}

AxisLayout axis_layout(const PlanRequest& request, const ParallelPlan& plan, Axis axis,
                       TrafficAxis traffic_axis, int other_stride) {
  const ProcessGrid grid(plan);
  const int ranks = grid.degree(axis);
  const GroupLinks placed =
      apply(request.cluster.group(ranks, grid.stride(axis)), request.calibration);
  const GroupLinks other = apply(request.cluster.group(ranks, other_stride), request.calibration);
  const std::vector<Traffic> traffic = traffic_of(request, plan, traffic_axis);
  Bytes sent;
  for (const Traffic& t : traffic) sent += t.times * t.payload;
  return {axis,
          ranks,
          placed.domains,
          sent,
          alone(traffic, placed),
          other.domains,
          alone(traffic, other)};
}

}  // namespace

std::vector<AxisLayout> layout_of(const PlanRequest& request, const Candidate& candidate) {
  const ParallelPlan& plan = candidate.plan;
  std::vector<AxisLayout> out;
  const auto add = [&](Axis axis, TrafficAxis traffic, int other_stride) {
    out.push_back(axis_layout(request, plan, axis, traffic, other_stride));
  };
  const int gpus = request.cluster.gpus();
  if (plan.tp > 1) add(Axis::tp, TrafficAxis::tp, gpus / plan.tp);
  if (plan.cp > 1) add(Axis::cp, TrafficAxis::cp, gpus / plan.cp);
  if (plan.dp > 1) add(Axis::dp, TrafficAxis::dp, 1);
  if (plan.pp > 1) add(Axis::pp, TrafficAxis::pp, 1);
  return out;
}

}  // namespace echelon
