// What the training of a plan takes: time, money, energy, failures.
#pragma once

#include <string>

#include "planner/search/search.hpp"

namespace echelon {

/// "2 T tokens in 23.1 days, 24.3 with failures, 74 k USD at 2 USD per GPU hour, about 1.4 MWh in
/// GPU boards (shares of their power assumed)"; "" without a budget of tokens.
[[nodiscard]] std::string economics_line(const PlanRequest& request, const Candidate& candidate);
/// Failures and checkpoints, where they are known and asked for; else "".
[[nodiscard]] std::string failures_line(const PlanRequest& request, Seconds step);

}  // namespace echelon
