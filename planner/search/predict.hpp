// One given plan, priced.
#pragma once

#include <optional>

#include "costmodel/cost_model.hpp"
#include "planner/space/request.hpp"

namespace echelon {

struct Candidate {
  ParallelPlan plan;
  PlanCosts prediction;
  bool fits = false;
  std::optional<Seconds> simulated_step{};  ///< finalists only: simulate_finalists.hpp
};

/// The plan the request's constraints describe, priced.
[[nodiscard]] Result<Candidate> predict(const PlanRequest& request);

}  // namespace echelon
