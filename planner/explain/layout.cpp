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

/// Axes whose groups lie next to each other: elsewhere they would be spread out. The others are
/// spread out: elsewhere they would lie next to each other.
bool is_inner(Axis axis) { return axis != Axis::dp && axis != Axis::pp && axis != Axis::expert_dp; }

/// What the groups of an axis send. Experts' groups that are those of tp or dp have no row of their
/// own: their traffic is part of that axis's.
std::vector<Traffic> traffic_in_row(const PlanRequest& request, const ParallelPlan& plan,
                                    const ProcessGrid& grid, Axis axis) {
  const auto is_part_of = [&](Axis experts, Axis dense) {
    return request.model.moe.experts > 0 && grid.group(experts) == traffic_group(grid, dense);
  };
  const auto joined = [&](Axis experts) {
    std::vector<Traffic> all = traffic_of(request, plan, axis);
    if (!is_part_of(experts, axis)) return all;
    for (const Traffic& t : traffic_of(request, plan, experts)) all.push_back(t);
    return all;
  };
  switch (axis) {
    case Axis::tp: return joined(Axis::etp);
    case Axis::dp: return joined(Axis::expert_dp);
    case Axis::etp:
      return is_part_of(axis, Axis::tp) ? std::vector<Traffic>{} : traffic_of(request, plan, axis);
    case Axis::expert_dp:
      return is_part_of(axis, Axis::dp) ? std::vector<Traffic>{} : traffic_of(request, plan, axis);
    case Axis::cp:
    case Axis::ep:
    case Axis::pp: break;
  }
  return traffic_of(request, plan, axis);
}

}  // namespace

std::vector<AxisLayout> layout_of(const PlanRequest& request, const Candidate& candidate) {
  const ProcessGrid grid(candidate.plan);
  const CostModel cost_model(request.model, request.job, request.cluster, request.framework,
                             request.calibration);
  std::vector<AxisLayout> out;
  for (const Axis axis : kAxes) {
    const std::vector<Traffic> traffic = traffic_in_row(request, candidate.plan, grid, axis);
    if (traffic.empty()) continue;
    const RankGroup group = traffic_group(grid, axis);
    const GroupLinks placed = cost_model.links(group);
    const GroupLinks other =
        cost_model.links(is_inner(axis) ? group.outermost(grid.ranks()) : group.innermost());
    Bytes sent;
    for (const Traffic& t : traffic) sent += t.times * bus_factor(t.kind, group.ranks) * t.payload;
    const bool with_cp = axis == Axis::dp && candidate.plan.cp > 1;
    out.push_back({axis, with_cp, group.ranks, placed.domains, sent, alone(traffic, placed),
                   other.domains, alone(traffic, other)});
  }
  return out;
}

}  // namespace echelon
