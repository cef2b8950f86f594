#include "planner/search/pareto_front.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "planner/economics.hpp"

namespace echelon {

bool dominates(const ParetoPoint& a, const ParetoPoint& b) {
  const bool no_worse = a.step() <= b.step() && a.memory() <= b.memory() && a.gpus() <= b.gpus() &&
                        a.gpu_time <= b.gpu_time;
  return no_worse && (a.step() < b.step() || a.memory() < b.memory() || a.gpus() < b.gpus() ||
                      a.gpu_time < b.gpu_time);
}

std::vector<ParetoPoint> front_of(const PlanRequest& request, const SearchOutcome& report) {
  std::vector<ParetoPoint> out;
  for (const Candidate& candidate : report.pareto) {
    out.push_back(
        {request.cluster, candidate, paid_per_step(request, candidate.prediction.time.step)});
  }
  return out;
}

std::vector<ParetoPoint> undominated(std::vector<ParetoPoint> plans) {
  const auto weight = [](const ParetoPoint& plan) {
    return std::tuple(plan.step(), plan.memory(), plan.gpus(), plan.gpu_time);
  };
  std::stable_sort(plans.begin(), plans.end(), [&](const ParetoPoint& a, const ParetoPoint& b) {
    return weight(a) < weight(b);
  });
  // Only an earlier plan can dominate a later one, and if a dropped one does, so does a kept one.
  std::vector<ParetoPoint> kept;
  for (ParetoPoint& plan : plans) {
    const bool beaten = std::any_of(
        kept.begin(), kept.end(), [&](const ParetoPoint& other) { return dominates(other, plan); });
    if (!beaten) kept.push_back(std::move(plan));
  }
  return kept;
}

}  // namespace echelon
