// Step 4 of a search, its end: single layers move between the stages of the plans that lead.
#pragma once

#include "planner/search/findings.hpp"

namespace echelon {

/// The split of the layers that is best in closed form is not always the one that simulates best.
/// Of the winner, the fastest plan and the fastest safe one, each split that moves one layer to a
/// neighbouring stage, or from or to one of the ends, is priced like any plan, until none of the
/// three changes, for a few plans at most. Only splits of points whose layers step 4 may place, in
/// which no whole layers are recomputed. `costs` of all shardings. Checked by:
/// tests/planner/search/exchange_layers_test.cpp.
void exchange_layers(const SearchContext& context, const CostsOfShardings& costs, Findings& found);

}  // namespace echelon
