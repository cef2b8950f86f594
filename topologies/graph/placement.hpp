// Placement: distribution of a group first, first + stride, ... over domains. Arithmetic only.
#pragma once

#include <cstdint>

namespace echelon {

/// The worst placement among all groups of one pattern: the group that touches the most domains,
/// and among those the one with the fewest members in some domain.
struct Placement {
  int per_domain = 1;   ///< maximum number of members in a domain
  int min_members = 1;  ///< minimum number of members in a domain
  int domains = 1;      ///< domains it touches
  int sharing = 1;      ///< groups of this pattern in one domain
  bool regular = true;  ///< all groups are alike, with equally many members in every domain
};

/// Groups consist of ranks of one block of ranks·stride consecutive ranks, as in a process grid:
///
///   group (k, j) = { k·r·s + j + i·s : i < r },   0 ≤ j < s,  k < gpus / (r·s)
///
///   r  ranks    members        s  stride  distance between members
///   D  domain   GPUs of one domain; domain d holds ranks d·D … d·D + D − 1
///
/// Regular when r·s divides D, D divides r·s with s | D, or s ≥ D. Constant time, except for one
/// step per block (or domain) if there are too few of them for every possible alignment to occur.
/// Source: counting; rank layout of core/plan/process_grid.hpp.
/// Checked by: tests/topologies/graph/placement_test.cpp against enumeration of all groups.
[[nodiscard]] Placement place(std::int64_t ranks, std::int64_t stride, std::int64_t domain,
                              std::int64_t gpus);

/// Nodes of each NVLink domain that a job of `nodes` ≥ 1 nodes uses, where a domain has `whole` ≥ 1
/// of them: all of a job that fits into one domain; else as many in each, the largest divisor of
/// `nodes` from whole/2 to whole; without such a divisor `whole`, the last domain having fewer.
///
///   64 nodes of 18: 16 (four domains)   72: 18 (four)   24: 12 (two)   19: 18 (and one)
///
/// So groups whose size divides the GPUs of a domain in use stay inside it.
/// Source: NVIDIA recommends segments of 16 of the 18 nodes to large jobs on GB200 NVL72 ("Unlock
/// Exascale Performance on NVIDIA GB200 NVL72 with Slurm Topology-Aware Job Scheduling", read in
/// the summary of app.daily.dev); the published runs on such racks use 64, 128 and 256 GPUs
/// (tests/validation/runs.csv). Assumed: other numbers likewise, and no less than half a domain.
/// Checked by: tests/topologies/graph/placement_test.cpp.
[[nodiscard]] std::int64_t nodes_of_each_domain(std::int64_t nodes, std::int64_t whole);

}  // namespace echelon
