// The order in which one pipeline rank computes, for each kind of schedule.
#pragma once

#include <algorithm>
#include <vector>

#include "core/schedule/schedule.hpp"

namespace echelon {

struct PipelineShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int ranks = 1;
  int chunks = 1;  ///< per rank; > 1 only when interleaved
  int microbatches = 1;
  int group = 1;  ///< interleaved: microbatches of a chunk in turn; fewer than ranks count as ranks
  bool operator==(const PipelineShape&) const = default;

  [[nodiscard]] int in_turn() const { return std::max(ranks, group); }
  [[nodiscard]] int stages() const { return ranks * chunks; }
  [[nodiscard]] int stage(int rank, int chunk) const { return chunk * ranks + rank; }
};

/// One forward, backward, input gradient or weight gradient of one chunk.
struct ComputeStep {
  Op op = Op::forward;
  std::int32_t chunk = 0;
  std::int32_t microbatch = 0;
  bool operator==(const ComputeStep&) const = default;
};

/// What `rank` computes, in order (s = rank, p ranks, v chunks, m microbatches):
///
///   GPipe        m forwards, m backwards
///   1F1B         min(p − s − 1, m) forwards, then one forward and one backward in turn, then the
///                remaining backwards
///   interleaved  the same with chunks: for each g ≥ p microbatches all chunks in turn, the last
///                group with what remains; a head start of min(2(p − s − 1) + (v − 1)g, m·v)
///                forwards. Demands m ≥ g, m mod g = 0 or ≥ p, and p > 1
///   ZB-H1        1F1B with the backward split: input gradients where 1F1B has backwards, weight
///                gradients s microbatches later, so that the drain is filled with them
///
/// Source: GPipe (arXiv 1811.06965); Narayanan et al. (arXiv 2104.04473) section 2.2 and
/// Megatron-LM core/pipeline_parallel/schedules.py, get_schedule_table and
/// get_pp_rank_microbatches; Qi et al. (arXiv 2401.10241) section 2.1.
[[nodiscard]] std::vector<ComputeStep> compute_order(const PipelineShape& shape, int rank);

}  // namespace echelon
