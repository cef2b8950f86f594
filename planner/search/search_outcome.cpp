#include "planner/search/search_outcome.hpp"

namespace echelon {

std::string_view name_of(OpenSplits::Kind kind) {
  switch (kind) {
    case OpenSplits::Kind::interleaved_two_kinds: return "interleaved-two-kinds";
    case OpenSplits::Kind::zero_bubble_h1: return "zb-h1";
    case OpenSplits::Kind::gpipe: return "gpipe";
    case OpenSplits::Kind::pinned_recompute: return "pinned-recompute";
  }
  return "?";
}

}  // namespace echelon
