// The order in which one pipeline rank computes, for each kind of schedule.
#pragma once

#include <algorithm>
#include <vector>

#include "core/schedule/schedule.hpp"

namespace echelon {

struct PipelineShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int ranks = 1;
  int chunks = 1;  ///< per rank; interleaved any number, DualPipeV and DualPipe two, others one
  int microbatches = 1;  ///< of each chunk: DualPipe's two directions have half of a step's each
  int group = 1;  ///< interleaved: microbatches of a chunk in turn; fewer than ranks count as ranks
  bool operator==(const PipelineShape&) const = default;

  [[nodiscard]] int in_turn() const { return std::max(ranks, group); }
  [[nodiscard]] StagePlacement placement() const { return {kind, ranks, chunks}; }
  [[nodiscard]] int stages() const { return ranks * chunks; }
  [[nodiscard]] int stage(int rank, int chunk) const { return placement().stage(rank, chunk); }
};

/// One forward, backward, input gradient or weight gradient of one chunk.
struct ComputeStep {
  Op op = Op::forward;
  std::int32_t chunk = 0;
  std::int32_t microbatch = 0;
  /// A forward that runs together with the backward that follows it: both begin when the inputs of
  /// both have arrived, and their outputs leave when both have ended.
  bool paired = false;
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
///   DualPipeV    chunks 0 and 1 are stages s and 2p − 1 − s. With d = p − s − 1:
///                2d F0; s + 1 times (F0, F1); d times (I1, W, F1);
///                m − 2p + s + 1 times (F0‖B1, F1‖B0); d times (B1, F1‖B0);
///                s + 1 times (B1, B0), of the second half only the input gradients;
///                d times (W, I0); s + 1 times W. Demands m ≥ 2p and p > 1. ‖ are paired; the last
///                rank does not pair its first F0 and B1
///   DualPipe     chunks 0 and 1 are stages s and p − 1 − s of the model, one for each direction.
///                Ranks j = min(s, p − 1 − s) compute as rank j of a DualPipeV of p/2 ranks, those
///                of the second half with their chunks exchanged: with M microbatches of both
///                directions 2(p/2 − j − 1) F0; j + 1 times (F0, F1); …;
///                M/2 − p + j + 1 times (F0‖B1, F1‖B0); …. Demands M ≥ 2p and an even p
///
/// Source: GPipe (arXiv 1811.06965); Narayanan et al. (arXiv 2104.04473) section 2.2 and
/// Megatron-LM core/pipeline_parallel/schedules.py, get_schedule_table and
/// get_pp_rank_microbatches; Qi et al. (arXiv 2401.10241) section 2.1; deepseek-ai/DualPipe
/// @3da1bbe, dualpipe/dualpipev.py and dualpipe.py, `step` (weight gradients in the order of their
/// input gradients, as its WeightGradStore).
[[nodiscard]] std::vector<ComputeStep> compute_order(const PipelineShape& shape, int rank);

}  // namespace echelon
