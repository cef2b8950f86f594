// What a search promises of its answer, in one place: the tests of its properties are told in these
// words and hold for either order of the plans.
#pragma once

#include <optional>

#include "planner/search/search.hpp"
#include "planner/space/constraints_of_plan.hpp"

namespace echelon::answers {

/// A plan that knows what it is expected to take once its risk and its complexity are counted.
template <class Plan>
concept Weighed = requires(const Plan& plan) {
  plan.expected();
};
/// The one switch. False: a search minimizes the step's closed form over the plans that fit. True:
/// it minimizes Candidate::expected() over those that also keep to the limit of beats().
inline constexpr bool kWeighed = Weighed<Candidate>;

/// What the search minimizes.
template <class Plan>
[[nodiscard]] Seconds objective_of(const Plan& plan) {
  if constexpr (Weighed<Plan>) {
    return plan.expected();
  } else {
    return plan.prediction.time.step;
  }
}

/// The step of the simulated pipeline, where it was simulated.
template <class Plan>
[[nodiscard]] std::optional<Seconds> simulated_step_of(const Plan& plan) {
  if constexpr (requires { plan.simulated_step; }) {
    return plan.simulated_step;
  } else {
    return plan.simulated ? std::optional(plan.prediction.time.step) : std::nullopt;
  }
}

/// The question whose answer is the fastest plan within a fixed memory: no risk, no complexity.
template <class Request>
[[nodiscard]] Request for_the_fastest(Request request) {
  request.max_memory = request.usable_memory();
  if constexpr (requires { request.preference; }) {
    request.preference = decltype(request.preference)::fastest;
  }
  return request;
}

/// The winner alone, without the plans that can only lie on the Pareto front.
template <class Request>
[[nodiscard]] std::optional<Candidate> winner_of(Request request) {
  request.top = 1;
  if constexpr (requires { request.without_front; }) request.without_front = true;
  const Result<SearchOutcome> outcome = search(request);
  if (!outcome || outcome->winner() == nullptr) return std::nullopt;
  return *outcome->winner();
}

/// `plan` as `plan predict` answers: priced for `request`, simulated.
template <class Plan = Candidate>
[[nodiscard]] Result<Plan> repriced(PlanRequest request, const ParallelPlan& plan) {
  request.constraints = pinned_to(plan);
  Result<Plan> out = predict(request);
  if constexpr (requires { out->simulated_step; }) {
    if (out) simulate_step(request, *out);
  }
  return out;
}

/// Whether `plan`, which `request` allows, should have been its answer instead of `winner`: it
/// fits, is better, and is not much slower than the fastest plan that certainly fits.
template <class Request>
[[nodiscard]] bool beats(const Request& request, const Candidate& plan, const Candidate& winner) {
  constexpr double kRounding = 1e-9;
  if (!plan.fits || objective_of(plan) >= objective_of(winner) * (1 - kRounding)) return false;
  if constexpr (kWeighed) {
    constexpr double kSafe = 0.9;
    constexpr double kMostGivenUp = 0.03;
    Request fastest = request;
    fastest.preference = decltype(fastest.preference)::fastest;
    if (request.preference == fastest.preference) return true;
    fastest.least_probability = kSafe;
    const std::optional<Candidate> safe = winner_of(fastest);
    return !safe ||
           plan.prediction.time.step <= safe->prediction.time.step * (1 + kMostGivenUp + kRounding);
  }
  return true;
}

}  // namespace echelon::answers
