#include "core/plan/process_grid.hpp"

#include <algorithm>
#include <limits>

#include "core/base/expects.hpp"

namespace echelon {

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::tp: return "tp";
    case Axis::cp: return "cp";
    case Axis::dp: return "dp";
    case Axis::pp: return "pp";
    case Axis::ep: return "ep";
    case Axis::etp: return "etp";
    case Axis::expert_dp: return "expert-dp";
  }
  return "?";
}

namespace {

std::array<int, kAxes> degrees_of(const ParallelPlan& plan) {
  return {plan.tp, plan.cp, plan.dp, plan.pp};
}

}  // namespace

ProcessGrid::ProcessGrid(const ParallelPlan& plan)
    : degree_(degrees_of(plan)), ep_(plan.ep), etp_(plan.etp) {
  EXPECTS(plan.gpus() <= std::numeric_limits<int>::max(), "ranks are counted in int");
  const bool pp_inside = plan.rank_order == RankOrder::pp_inside_dp;
  const std::array<Axis, kAxes> inside_out = {Axis::tp, Axis::cp, pp_inside ? Axis::pp : Axis::dp,
                                              pp_inside ? Axis::dp : Axis::pp};
  int stride = 1;
  for (const Axis axis : inside_out) {
    EXPECTS(degree(axis) >= 1, "a degree is at least 1");
    stride_[index(axis)] = stride;
    stride *= degree(axis);
  }
}

Result<ProcessGrid> ProcessGrid::with_order(const ParallelPlan& plan, std::string_view rank_order) {
  ProcessGrid grid(plan);
  std::array<bool, kAxes> seen{};
  int stride = 1;
  const auto complain = [&](std::string found) {
    return input_error("--rank-order", std::move(found),
                       "the axes tp, cp, ep, dp, pp once each, innermost first, joined by '-'",
                       "the default is tp-cp-ep-dp-pp");
  };
  bool seen_ep = false;
  for (std::size_t at = 0; at <= rank_order.size();) {
    const auto dash = std::min(rank_order.find('-', at), rank_order.size());
    const auto word = rank_order.substr(at, dash - at);
    at = dash + 1;
    if (word == "ep") {  // lies inside the other axes: position has no effect on dense groups
      if (seen_ep) return complain("axis 'ep' twice");
      seen_ep = true;
      continue;
    }
    std::size_t axis = 0;
    while (axis < kAxes && name_of(static_cast<Axis>(axis)) != word) ++axis;
    if (axis == kAxes) return complain("unknown axis '" + std::string(word) + "'");
    if (seen[axis]) return complain("axis '" + std::string(word) + "' twice");
    seen[axis] = true;
    grid.stride_[axis] = stride;
    stride *= grid.degree_[axis];
  }
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (!seen[axis]) {
      return complain("no axis '" + std::string(name_of(static_cast<Axis>(axis))) + "'");
    }
  }
  return grid;
}

int ProcessGrid::ranks() const {
  int product = 1;
  for (const int degree : degree_) product *= degree;
  return product;
}

Coordinates ProcessGrid::coordinates(int rank) const {
  EXPECTS(rank >= 0 && rank < ranks(), "rank outside the grid");
  const auto along = [&](Axis axis) { return rank / stride(axis) % degree(axis); };
  return {along(Axis::tp), along(Axis::cp), along(Axis::dp), along(Axis::pp)};
}

int ProcessGrid::rank(const Coordinates& at) const {
  const auto inside = [&](Axis axis, int value) { return value >= 0 && value < degree(axis); };
  EXPECTS(inside(Axis::tp, at.tp) && inside(Axis::cp, at.cp) && inside(Axis::dp, at.dp) &&
              inside(Axis::pp, at.pp),
          "coordinates outside the grid");
  return at.tp * stride(Axis::tp) + at.cp * stride(Axis::cp) + at.dp * stride(Axis::dp) +
         at.pp * stride(Axis::pp);
}

/// `ranks` members, each `places` after the one before among the ranks of a stage. Those are
/// consecutive within one replica (tp·cp of them); the next replica starts a stride of dp later.
RankGroup ProcessGrid::expert_grid(int ranks, int places) const {
  if (ranks == 1) return {};
  const int replica = degree(Axis::tp) * degree(Axis::cp);
  const int next = stride(Axis::dp);
  EXPECTS(stride(Axis::tp) == 1, "tensor-parallel ranks are neighbours");
  if (next == replica || replica % (ranks * places) == 0) return {ranks, places};
  EXPECTS(places % replica == 0, "members of a group at equal distances");
  return {ranks, places / replica * next};
}

RankGroup ProcessGrid::group(Axis axis) const {
  switch (axis) {
    case Axis::tp:
    case Axis::cp:
    case Axis::dp:
    case Axis::pp: return {degree(axis), stride(axis)};
    case Axis::ep: return expert_grid(ep_, etp_);
    case Axis::etp: return expert_grid(etp_, 1);
    case Axis::expert_dp: break;
  }
  const int stage = degree(Axis::tp) * degree(Axis::cp) * degree(Axis::dp);
  return expert_grid(stage / (ep_ * etp_), ep_ * etp_);
}

RankGroup ProcessGrid::data_group() const {
  const RankGroup cp = group(Axis::cp);
  const RankGroup dp = group(Axis::dp);
  if (cp.ranks == 1) return dp;
  EXPECTS(dp.ranks == 1 || dp.stride == cp.ranks * cp.stride, "dp follows cp");
  return {cp.ranks * dp.ranks, cp.stride};
}

std::vector<int> ProcessGrid::group(Axis axis, int rank) const {
  const int own = rank / stride(axis) % degree(axis);
  std::vector<int> members(static_cast<std::size_t>(degree(axis)));
  for (int i = 0; i < degree(axis); ++i) {
    members[static_cast<std::size_t>(i)] = rank + (i - own) * stride(axis);
  }
  return members;
}

std::vector<int> ProcessGrid::expert_group(int rank) const {
  const Coordinates at = coordinates(rank);
  const int tp = degree(Axis::tp);
  const int cp = degree(Axis::cp);
  const int place = at.tp + tp * (at.cp + cp * at.dp);  // among the ranks of the stage
  const int first = place - place / etp_ % ep_ * etp_;
  std::vector<int> members;
  for (int i = 0; i < ep_; ++i) {
    const int member = first + i * etp_;
    EXPECTS(member < tp * cp * degree(Axis::dp), "ep x etp divides the ranks of a stage");
    members.push_back(this->rank({member % tp, member / tp % cp, member / (tp * cp), at.pp}));
  }
  return members;
}

}  // namespace echelon
