// Where the axes of a plan lie on the network, and what it would cost if they lay elsewhere.
#pragma once

#include <vector>

#include "core/plan/process_grid.hpp"
#include "planner/search/predict.hpp"

namespace echelon {

/// One axis of the winner on the network. Times are of its collectives alone, nothing hidden. etp
/// and expert_dp have rows where their groups are not those of tp and dp.
struct AxisLayout {
  Axis axis{};
  bool with_cp = false;  ///< dp, and cp of more than one rank
  int ranks = 1;
  int domains = 1;  ///< NVLink domains a group touches as placed
  Bytes sent;       ///< by a rank in a step: its collectives' payloads by their bus factors
  Seconds placed;
  int other_domains = 1;
  Seconds elsewhere;  ///< tp, cp, ep, etp: as the outermost axis; others: innermost
};

[[nodiscard]] std::vector<AxisLayout> layout_of(const PlanRequest& request,
                                                const Candidate& candidate);

}  // namespace echelon
