// One given plan, priced.
#pragma once

#include <optional>
#include <vector>

#include "costmodel/cost_model.hpp"
#include "planner/space/score.hpp"

namespace echelon {

struct Candidate {
  ParallelPlan plan;
  PlanCosts prediction;
  bool fits = false;       ///< with a probability of at least kLeastProbability
  bool simulated = false;  ///< the step; else its closed form was taken: too many microbatches
  Score score{};
  /// What a search minimizes: the step times its weight.
  [[nodiscard]] Seconds expected() const { return score.weight * prediction.time.step; }
};

/// A plan with its prediction: price it, simulate its pipeline and weigh it.
[[nodiscard]] Candidate candidate_of(const PlanRequest& request, const CostModel& cost_model,
                                     ParallelPlan plan);

/// What the request's framework asks for and warns of when it runs the plan.
[[nodiscard]] std::vector<FrameworkRemark> remarks_of(const PlanRequest& request,
                                                      const ParallelPlan& plan);

/// The plan the request's constraints describe, priced and simulated.
[[nodiscard]] Result<Candidate> predict(const PlanRequest& request);

}  // namespace echelon
