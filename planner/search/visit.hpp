// Step 3 of a search: all points of one degree node bounded, and priced where they can matter.
#pragma once

#include "planner/search/enumerate.hpp"

namespace echelon {

/// `work` is overwritten.
void visit(const SearchContext& context, const DegreeNode& node, Findings& found, Priced& work);

}  // namespace echelon
