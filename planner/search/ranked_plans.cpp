#include "planner/search/ranked_plans.hpp"

#include <algorithm>

#include "planner/search/optimize.hpp"

namespace echelon {
namespace {

bool same_plan(const Candidate& a, const Candidate& b) {
  return a.prediction.time.step == b.prediction.time.step && a.plan == b.plan;
}

bool contains_plan(const std::vector<Candidate>& all, const Candidate& one) {
  return std::ranges::any_of(all, [&](const Candidate& c) { return same_plan(c, one); });
}

}  // namespace

std::vector<RankedPlan> plans_of(const PlanRequest& request, const SearchOutcome& report) {
  std::vector<RankedPlan> plans;
  plans.reserve(report.candidates.size() + report.pareto.size());
  const Candidate* winner = report.winner();
  const auto tied_with_winner = [&](const Candidate& candidate) {
    return winner != nullptr && request.objective != Objective::memory_headroom &&
           tied(winner->prediction.time, candidate.prediction.time, request.calibration.time_band);
  };
  const Candidate* fastest = report.fastest ? &*report.fastest : winner;
  const auto is_fastest = [&](const Candidate& candidate) {
    return request.objective != Objective::memory_headroom && fastest != nullptr &&
           same_plan(*fastest, candidate);
  };
  int rank = 0;
  for (const Candidate& candidate : report.candidates) {
    plans.push_back({.candidate = &candidate,
                     .rank = ++rank,
                     .on_front = contains_plan(report.pareto, candidate),
                     .fastest = is_fastest(candidate),
                     .tied = tied_with_winner(candidate)});
  }
  if (report.fastest && !contains_plan(report.candidates, *report.fastest) &&
      !contains_plan(report.pareto, *report.fastest)) {
    plans.push_back({.candidate = &*report.fastest,
                     .fastest = true,
                     .tied = tied_with_winner(*report.fastest)});
  }
  for (const Candidate& candidate : report.pareto) {
    if (contains_plan(report.candidates, candidate)) continue;
    plans.push_back({.candidate = &candidate,
                     .on_front = true,
                     .fastest = is_fastest(candidate),
                     .tied = tied_with_winner(candidate)});
  }
  return plans;
}

}  // namespace echelon
