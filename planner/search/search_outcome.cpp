#include "planner/search/search_outcome.hpp"

namespace echelon {

std::string_view name_of(OpenSplits::Kind kind) {
  switch (kind) {
    case OpenSplits::Kind::pinned_recompute: return "pinned-recompute";
  }
  return "?";
}

}  // namespace echelon
