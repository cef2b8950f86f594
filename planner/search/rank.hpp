// Step 5 of a search: plans ranked, the finalists simulated, the Pareto front collected.
#pragma once

#include "planner/search/findings.hpp"
#include "planner/search/progress.hpp"

namespace echelon {

/// The best plans, simulated event by event while `progress` returns true; where nothing fits, the
/// plans that miss by least. `found` is left without its plans.
[[nodiscard]] SearchOutcome rank(const SearchContext& context, Findings& found,
                                 const Progress& progress);

}  // namespace echelon
