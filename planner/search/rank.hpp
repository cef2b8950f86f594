// Step 5 of a search: plans simulated and ranked, the Pareto front collected.
#pragma once

#include "planner/search/findings.hpp"

namespace echelon {

/// The best plans, simulated event by event while `progress` returns true; where nothing fits, the
/// plans that miss by least. `found` is left without its plans.
[[nodiscard]] SearchOutcome rank(const SearchContext& context, Findings& found,
                                 const CostsOfShardings& costs);

}  // namespace echelon
