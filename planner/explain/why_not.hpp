// Why not this configuration: the rule it breaks, the memory it lacks, or the time it loses.
#pragma once

#include <optional>

#include "planner/search/optimize.hpp"

namespace echelon {

struct WhyNot {
  enum class Verdict {
    illegal,    ///< no plan has these values
    too_large,  ///< the smallest plan that has them does not fit
    slower,     ///< the best plan that has them loses
    winner,     ///< it is the winner
    better,     ///< it beats the winner, which the request's own constraints hold back
    unknown,    ///< stopped before a plan with these values was found that fits
  };
  Verdict verdict{};
  std::optional<Rejection> rule;      ///< illegal
  std::optional<Candidate> asked;     ///< the best plan with these values, or the nearest miss
  int stage = 0;                      ///< too_large: the stage that lacks most
  Bytes missing;                      ///< … and how much
  std::optional<Candidate> neighbor;  ///< illegal, too_large: the nearest plan that fits
  int changes = 0;                    ///< values of `asked` that the neighbour changes
  bool tied = false;                  ///< slower, better: within the error of the model
  bool whole = true;  ///< false: stopped before all plans with these values, or near, were seen
};

/// `asked` takes the place of what the request pins; everything else is searched. The nearest
/// neighbour changes as few of the asked values as possible, and those by as little as possible
/// (by ratio; ties: the better plan). `winner` is the request's. `progress` can stop it, without a
/// share.
[[nodiscard]] WhyNot why_not(const PlanRequest& request, const PlanConstraints& asked,
                             const Candidate* winner, const Progress& progress = {});

}  // namespace echelon
