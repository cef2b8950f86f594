#include "planner/search/rank.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "planner/search/nearest_infeasible.hpp"

namespace echelon {
namespace {

constexpr std::size_t kShownMisses = 3;
/// Closed forms of siblings may differ so much from their best plan's, relative.
constexpr double kNearlyAsGood = 0.01;

Candidate candidate_at(const SearchContext& context, const Findings& found, std::size_t index) {
  ParallelPlan plan;
  found.pool.fill(found.pool.plans()[index], plan);
  return candidate_of(context.request, context.cost_model, std::move(plan));
}

std::optional<std::int64_t> whole_number(const PlanField& field, const ParallelPlan& plan) {
  const auto* member = std::get_if<int ParallelPlan::*>(&field.member);
  return member != nullptr ? std::optional<std::int64_t>(plan.**member) : std::nullopt;
}

/// The whole numbers of a point that differ between the plans of a family.
void widen(Siblings& siblings, const ParallelPlan& best, const ParallelPlan& other) {
  for (const PlanField* field : differing_fields(best, other)) {
    const std::optional<std::int64_t> of_best = whole_number(*field, best);
    const std::optional<std::int64_t> of_other = whole_number(*field, other);
    if (!of_best || !of_other) continue;
    auto range = std::find_if(siblings.ranges.begin(), siblings.ranges.end(),
                              [&](const Siblings::Range& each) { return each.field == field; });
    if (range == siblings.ranges.end()) {
      siblings.ranges.push_back({field, *of_best, *of_best});
      range = siblings.ranges.end() - 1;
    }
    range->first = std::min(range->first, *of_other);
    range->last = std::max(range->last, *of_other);
  }
}

Siblings siblings_of(const Findings& found, std::size_t index) {
  const PricedPoint& best = found.pool.plans()[index];
  const PlanFamily family = family_of(best.point);
  Siblings out{.least = best.closed_form,
               .most = best.closed_form,
               .smallest = best.memory,
               .largest = best.memory};
  ParallelPlan plan, other;
  found.pool.fill(best, plan);
  for (const PricedPoint& each : found.pool.plans()) {
    if (&each == &best || each.closed_form > best.closed_form * (1 + kNearlyAsGood) ||
        family_of(each.point) != family) {
      continue;
    }
    ++out.plans;
    out.least = std::min(out.least, each.closed_form);
    out.most = std::max(out.most, each.closed_form);
    out.smallest = std::min(out.smallest, each.memory);
    out.largest = std::max(out.largest, each.memory);
    found.pool.fill(each, other);
    widen(out, plan, other);
  }
  return out;
}

/// Of the plans simulated, those that no other is both faster and smaller than; fastest first.
std::vector<Candidate> front_of_plans(const SearchContext& context, const Findings& found) {
  const std::vector<PricedPoint>& plans = found.pool.plans();
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].simulated) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(*plans[a].simulated, plans[a].memory, plans[a].point) <
           std::tie(*plans[b].simulated, plans[b].memory, plans[b].point);
  });
  std::vector<Candidate> kept;
  std::optional<Bytes> smallest;
  for (const std::size_t i : order) {
    if (smallest && plans[i].memory >= *smallest) continue;
    smallest = plans[i].memory;
    kept.push_back(candidate_at(context, found, i));
  }
  return kept;
}

}  // namespace

SearchOutcome rank(const SearchContext& context, Findings& found, const CostsOfShardings& costs) {
  SearchOutcome out;
  found.pool.settle(costs);
  for (const std::size_t i : found.pool.listed(static_cast<std::size_t>(context.request.top))) {
    out.candidates.push_back(candidate_at(context, found, i));
    out.siblings.push_back(siblings_of(found, i));
  }
  if (const auto fastest = found.pool.fastest()) {
    Candidate plan = candidate_at(context, found, *fastest);
    if (plan.prediction.time.step < out.candidates.front().prediction.time.step) {
      out.fastest = std::move(plan);
    }
    if (const auto likely = found.pool.fastest_safe(); likely && *likely != *fastest) {
      plan = candidate_at(context, found, *likely);
      if (plan.prediction.time.step < out.candidates.front().prediction.time.step) {
        out.fastest_likely = std::move(plan);
      }
    }
  }
  out.pareto = front_of_plans(context, found);
  out.whole_front = context.whole_front;
  out.rejected = found.rejections();
  out.counts = found.counts();
  out.counts.simulated = found.pool.simulated();
  if (out.candidates.empty()) {
    const std::vector<TooLargePoint> misses = found.closest();
    for (std::size_t i = 0; i < std::min(kShownMisses, misses.size()); ++i) {
      out.nearest_infeasible.push_back(nearest_infeasible(context.request, misses[i].point));
    }
  }
  return out;
}

}  // namespace echelon
