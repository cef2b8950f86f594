// Constraints that no plan can meet, found before anything is enumerated.
#pragma once

#include "planner/space/request.hpp"

namespace echelon {

/// Counts of recomputed layers next to a policy that has none.
[[nodiscard]] Status check_recompute_counts(const PlanConstraints& pinned);

/// All that can be said before a search: the same, stages without a number of stages, chunks
/// without interleaving, buckets that no plan can have.
[[nodiscard]] Status check_contradictions(const PlanRequest& request);

}  // namespace echelon
