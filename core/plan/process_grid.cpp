#include "core/plan/process_grid.hpp"

#include <algorithm>
#include <limits>

#include "core/base/expects.hpp"
#include "core/base/text.hpp"

namespace echelon {

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::tp: return "tp";
    case Axis::cp: return "cp";
    case Axis::ep: return "ep";
    case Axis::etp: return "etp";
    case Axis::dp: return "dp";
    case Axis::pp: return "pp";
    case Axis::expert_dp: return "expert-dp";
  }
  return "?";
}

namespace {

/// The axes on which a rank has a coordinate.
constexpr std::array<Axis, 4> kCoordinateAxes = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};

AxisArray<int> degrees_of(const ParallelPlan& plan) {
  AxisArray<int> degree;
  degree[Axis::tp] = plan.tp;
  degree[Axis::cp] = plan.cp;
  degree[Axis::ep] = plan.ep;
  degree[Axis::etp] = plan.etp;
  degree[Axis::dp] = plan.dp;
  degree[Axis::pp] = plan.pp;
  for (const Axis axis : kAxes) {
    EXPECTS(axis == Axis::expert_dp || degree[axis] >= 1, "a degree is at least 1");
  }
  degree[Axis::expert_dp] = static_cast<int>(plan.expert_dp());
  return degree;
}

}  // namespace

ProcessGrid::ProcessGrid(const ParallelPlan& plan) : degree_(degrees_of(plan)) {
  EXPECTS(plan.gpus() <= std::numeric_limits<int>::max(), "ranks are counted in int");
  const bool pp_inside = plan.rank_order == RankOrder::pp_inside_dp;
  const std::array<Axis, 4> inside_out = {Axis::tp, Axis::cp, pp_inside ? Axis::pp : Axis::dp,
                                          pp_inside ? Axis::dp : Axis::pp};
  int stride = 1;
  for (const Axis axis : inside_out) {
    stride_[axis] = stride;
    stride *= degree(axis);
  }
}

Result<ProcessGrid> ProcessGrid::with_order(const ParallelPlan& plan, std::string_view rank_order) {
  ProcessGrid grid(plan);
  AxisArray<bool> seen;
  int stride = 1;
  const auto complain = [&](std::string found) {
    return input_error("--rank-order", std::move(found),
                       "the axes tp, cp, ep, dp, pp once each, innermost first, joined by '-'",
                       "the default is tp-cp-ep-dp-pp");
  };
  for (std::size_t at = 0; at <= rank_order.size();) {
    const auto dash = std::min(rank_order.find('-', at), rank_order.size());
    const auto word = rank_order.substr(at, dash - at);
    at = dash + 1;
    const auto axis = std::ranges::find_if(kAxes, [&](Axis each) { return name_of(each) == word; });
    if (axis == kAxes.end() || *axis == Axis::etp) {
      return complain("unknown axis " + in_quotes(word));
    }
    if (seen[*axis]) return complain("axis '" + std::string(word) + "' twice");
    seen[*axis] = true;
    if (*axis == Axis::ep) continue;  // lies inside the others: its position has no effect
    grid.stride_[*axis] = stride;
    stride *= grid.degree(*axis);
  }
  for (const Axis axis : kCoordinateAxes) {
    if (!seen[axis]) return complain("no axis '" + std::string(name_of(axis)) + "'");
  }
  return grid;
}

int ProcessGrid::ranks() const {
  int product = 1;
  for (const Axis axis : kCoordinateAxes) product *= degree(axis);
  return product;
}

Coordinates ProcessGrid::coordinates(int rank) const {
  EXPECTS(rank >= 0 && rank < ranks(), "rank outside the grid");
  const auto along = [&](Axis axis) { return rank / stride_[axis] % degree(axis); };
  return {along(Axis::tp), along(Axis::cp), along(Axis::dp), along(Axis::pp)};
}

int ProcessGrid::rank(const Coordinates& at) const {
  const auto inside = [&](Axis axis, int value) { return value >= 0 && value < degree(axis); };
  EXPECTS(inside(Axis::tp, at.tp) && inside(Axis::cp, at.cp) && inside(Axis::dp, at.dp) &&
              inside(Axis::pp, at.pp),
          "coordinates outside the grid");
  return at.tp * stride_[Axis::tp] + at.cp * stride_[Axis::cp] + at.dp * stride_[Axis::dp] +
         at.pp * stride_[Axis::pp];
}

ProcessGrid::Places ProcessGrid::expert_places(Axis axis) const {
  const int etp = degree(Axis::etp);
  if (axis == Axis::etp) return {etp, 1};
  if (axis == Axis::ep) return {degree(Axis::ep), etp};
  return {degree(Axis::expert_dp), degree(Axis::ep) * etp};
}

/// Places of a stage are consecutive ranks within one replica (tp·cp of them, tp innermost); the
/// next replica starts a stride of dp later.
bool ProcessGrid::evenly_spaced(Places places) const {
  const int replica = degree(Axis::tp) * degree(Axis::cp);
  return places.count == 1 || stride_[Axis::dp] == replica ||
         replica % (places.count * places.apart) == 0 || places.apart % replica == 0;
}

bool ProcessGrid::evenly_spaced(Axis axis) const {
  const bool experts = axis == Axis::ep || axis == Axis::etp || axis == Axis::expert_dp;
  return !experts || evenly_spaced(expert_places(axis));
}

RankGroup ProcessGrid::group(Axis axis) const {
  switch (axis) {
    case Axis::tp:
    case Axis::cp:
    case Axis::dp:
    case Axis::pp: return {degree(axis), stride_[axis]};
    case Axis::ep:
    case Axis::etp:
    case Axis::expert_dp: break;
  }
  const Places places = expert_places(axis);
  if (places.count == 1) return {};
  EXPECTS(stride_[Axis::tp] == 1, "tensor-parallel ranks are neighbours");
  EXPECTS(evenly_spaced(places), "members of a group at equal distances");
  const int replica = degree(Axis::tp) * degree(Axis::cp);
  if (places.apart % replica != 0) return {places.count, places.apart};
  return {places.count, places.apart / replica * stride_[Axis::dp]};
}

RankGroup ProcessGrid::data_group() const {
  const RankGroup cp = group(Axis::cp);
  const RankGroup dp = group(Axis::dp);
  if (cp.ranks == 1) return dp;
  EXPECTS(dp.ranks == 1 || dp.stride == cp.ranks * cp.stride, "dp follows cp");
  return {cp.ranks * dp.ranks, cp.stride};
}

std::vector<int> ProcessGrid::group(Axis axis, int rank) const {
  const Coordinates at = coordinates(rank);
  std::vector<int> members;
  if (axis == Axis::tp || axis == Axis::cp || axis == Axis::dp || axis == Axis::pp) {
    const int first = rank - rank / stride_[axis] % degree(axis) * stride_[axis];
    for (int i = 0; i < degree(axis); ++i) members.push_back(first + i * stride_[axis]);
    return members;
  }
  const Places places = expert_places(axis);
  const int tp = degree(Axis::tp);
  const int cp = degree(Axis::cp);
  const int place = at.tp + tp * (at.cp + cp * at.dp);  // among the ranks of the stage
  const int first = place - place / places.apart % places.count * places.apart;
  for (int i = 0; i < places.count; ++i) {
    const int member = first + i * places.apart;
    EXPECTS(member < tp * cp * degree(Axis::dp), "ep x etp divides the ranks of a stage");
    members.push_back(this->rank({member % tp, member / tp % cp, member / (tp * cp), at.pp}));
  }
  return members;
}

std::vector<int> ProcessGrid::data_group(int rank) const {
  Coordinates at = coordinates(rank);
  std::vector<int> members;
  for (at.dp = 0; at.dp < degree(Axis::dp); ++at.dp) {
    for (at.cp = 0; at.cp < degree(Axis::cp); ++at.cp) members.push_back(this->rank(at));
  }
  return members;
}

}  // namespace echelon
