// Steps 1 and 2 of a search: the degrees that the request leaves open, each with its first bound.
#pragma once

#include <vector>

#include "planner/search/findings.hpp"
#include "planner/search/least_times.hpp"

namespace echelon {

struct DegreeSpace {
  CostsOfShardings costs;         ///< computed once for all nodes that shard a layer alike
  std::vector<DegreeNode> nodes;  ///< smallest bound first
};

/// All degrees that break no rule and leave a schedule. Degrees that break one are rejected once
/// for all that the rest could be.
[[nodiscard]] DegreeSpace enumerate_degrees(const SearchContext& context, Findings& found);

}  // namespace echelon
