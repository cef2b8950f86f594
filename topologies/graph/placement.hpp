// Placement: how a group first, first + stride, ... falls on domains. Arithmetic only.
#pragma once

#include <cstdint>

namespace echelon {

/// The group that is worst off among all groups of one kind: the one that touches most domains,
/// and among those the one with fewest members in some domain.
struct Placement {
  int per_domain = 1;   ///< its members in its fullest domain
  int fewest = 1;       ///< its members in its emptiest domain
  int domains = 1;      ///< domains it touches
  int sharing = 1;      ///< groups of this kind in one domain
  bool regular = true;  ///< all groups alike, the same number of members in every domain
};

/// Groups are cut from blocks of ranks·stride consecutive ranks, as a process grid does:
///
///   group (k, j) = { k·r·s + j + i·s : i < r },   0 ≤ j < s,  k < gpus / (r·s)
///
///   r  ranks    members        s  stride  distance between members
///   D  domain   GPUs of one domain; domain d holds ranks d·D … d·D + D − 1
///
/// Regular when r·s divides D, D divides r·s with s | D, or s ≥ D. Constant time, except for one
/// step per block (or domain) when there are too few of them to meet in every possible way.
/// Source: counting; rank layout of core/plan/process_grid.hpp.
/// Checked by: tests/topologies/graph/placement_test.cpp against enumeration of all groups.
[[nodiscard]] Placement place(std::int64_t ranks, std::int64_t stride, std::int64_t domain,
                              std::int64_t gpus);

}  // namespace echelon
