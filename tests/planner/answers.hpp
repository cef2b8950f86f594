// What a search promises of its answer, in one place: the tests of its properties are written in
// these words.
#pragma once

#include <optional>

#include "planner/search/search.hpp"
#include "planner/space/constraints_of_plan.hpp"

namespace echelon::answers {

/// What the search minimizes.
[[nodiscard]] inline Seconds objective_of(const Candidate& plan) { return plan.expected(); }

/// The step of the simulated pipeline, where it was simulated.
[[nodiscard]] inline std::optional<Seconds> simulated_step_of(const Candidate& plan) {
  return plan.simulated ? std::optional(plan.prediction.time.step) : std::nullopt;
}

/// The question whose answer is the fastest plan within a fixed memory: no risk, no complexity.
[[nodiscard]] inline PlanRequest for_the_fastest(PlanRequest request) {
  request.max_memory = request.usable_memory();
  request.preference = Preference::fastest;
  return request;
}

/// The winner alone.
[[nodiscard]] inline std::optional<Candidate> winner_of(PlanRequest request) {
  request.top = 1;
  const Result<SearchOutcome> outcome = search(request);
  if (!outcome || outcome->winner() == nullptr) return std::nullopt;
  return *outcome->winner();
}

/// `plan` as `plan predict` answers: priced for `request`, simulated.
[[nodiscard]] inline Result<Candidate> repriced(PlanRequest request, const ParallelPlan& plan) {
  request.constraints = pinned_to(plan);
  return predict(request);
}

/// Whether `plan`, which `request` allows, should have been its answer instead of `winner`: it
/// fits, is better, and is not much slower than the fastest plan that certainly fits.
[[nodiscard]] inline bool beats(const PlanRequest& request, const Candidate& plan,
                                const Candidate& winner) {
  constexpr double kRounding = 1e-9;
  if (!plan.fits || objective_of(plan) >= objective_of(winner) * (1 - kRounding)) return false;
  if (request.preference == Preference::fastest) return true;
  PlanRequest fastest = request;
  fastest.preference = Preference::fastest;
  fastest.least_probability = kSafeProbability;
  const std::optional<Candidate> safe = winner_of(fastest);
  return !safe ||
         plan.prediction.time.step <= safe->prediction.time.step * (1 + kMostGivenUp + kRounding);
}

}  // namespace echelon::answers
