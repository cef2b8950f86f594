// What one plan gives up against another, in words: time, the probability of fitting, plainness.
#pragma once

#include <string>
#include <vector>

#include "planner/search/predict.hpp"

namespace echelon {

/// Parts of a sentence: "a", "a and b", "a, b and c".
[[nodiscard]] std::string enumerated(const std::vector<std::string>& parts);

/// The unusual features of `plan` that `other` does not have: "chunks of unequal size".
[[nodiscard]] std::vector<std::string> more_unusual(const Candidate& plan, const Candidate& other);

/// What speaks against a plan that a search ranks behind `other` though its step is no longer: "is
/// only 66 % likely to fit and has chunks of unequal size".
[[nodiscard]] std::string drawbacks(const Candidate& plan, const Candidate& other);

/// Why `other` is not the best plan, and what it has instead: "87.3 ms more stage imbalance;
/// without optimizer states in host memory".
[[nodiscard]] std::string trade_of(const Candidate& best, const Candidate& other);

/// ", 93 % likely to fit"; "" where a limit on memory was given.
[[nodiscard]] std::string chance_of(const Candidate& plan);
/// The limit of memory by which a plan fits: "at most 76.8 GiB are likely to fit".
/// " without the offload of parameters that your job has, which has no price", or "".
[[nodiscard]] std::string without_savings(const PlanRequest& request);
[[nodiscard]] std::string limit_text(const PlanRequest& request);

/// Of the parts of a step: "1.39 s more recompute".
[[nodiscard]] std::string why_slower(const Candidate& best, const Candidate& other);

}  // namespace echelon
