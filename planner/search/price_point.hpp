// Step 3 of a search, one point: its memory, its time, and the fewest layers it must recompute.
#pragma once

#include "planner/search/context.hpp"

namespace echelon {

/// Fills the plan of a legal point and its memory into `out`. Returns the reserved peak minus the
/// usable memory: above zero the plan does not fit.
Bytes price_memory(const SearchContext& context, const SearchPoint& point,
                   const ShardingCosts& costs, Priced& out);

/// The same with whatever recomputation leaves the least: the last policy of the point, mostly
/// every layer, or another, for the buffer of the layer being recomputed can be larger than all it
/// saves. Leaves the last in `point`, and its plan in `out`.
Bytes least_shortage(const SearchContext& context, SearchPoint& point, const ShardingCosts& costs,
                     Priced& out);

/// Fewest recomputed layers per stage with which the point reserves at most `limit` (a multiple of
/// vpp: every chunk alike), or 0 when none are needed; `all` where fewer do not help.
[[nodiscard]] int fewest_recomputed(const SearchContext& context, SearchPoint point, int all,
                                    Bytes limit, const ShardingCosts& costs, Priced& out);

}  // namespace echelon
