// Step 1 of a search: the degrees that the request leaves open, with the costs of their layers.
#pragma once

#include <vector>

#include "planner/search/findings.hpp"
#include "planner/search/least_times.hpp"

namespace echelon {

struct DegreeSpace {
  CostsOfShardings costs;         ///< computed once for all nodes that shard a layer alike
  std::vector<DegreeNode> nodes;  ///< with their work, `least` by quick_bound(): node_queue.hpp
};

/// All degrees that break no rule. Degrees that break one are rejected once for all that the rest
/// could be.
[[nodiscard]] DegreeSpace enumerate_degrees(const SearchContext& context, Findings& found);

}  // namespace echelon
