// Step 4 of a search: the exact partition of layers over stages, for points that can be listed.
#pragma once

#include "planner/search/findings.hpp"

namespace echelon {

/// Uneven layers per stage, exactly, accepted where they beat the point's balanced stages and can
/// be listed. `work` is overwritten.
void improve_partition(const SearchContext& context, const PendingPartition& open, Findings& found,
                       Priced& work);

}  // namespace echelon
