// Where the chunks of a pipeline lie: which stage each chunk of a rank is.
#pragma once

#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// The chunks of `ranks` pipeline ranks as stages, in the order in which a microbatch passes
/// through them:
///
///   all but these   chunk c of rank r is stage c·p + r: the stages go round the ranks
///   DualPipeV       odd chunks run back: stages r and 2p − 1 − r of rank r, so that the first
///                   rank holds the embedding and the head, and the last one passes a microbatch
///                   from its first to its second chunk without a message
///   DualPipe        the same ranks, but two pipelines: stages 0 to p − 1 are the model from the
///                   first rank to the last, stages p to 2p − 1 the model once more, from the last
///                   rank to the first. Each has its own microbatches
///
/// Source: deepseek-ai/DualPipe @3da1bbe, dualpipe/dualpipev.py and dualpipe.py (`prev_rank`,
/// `next_rank` per phase; is_first_stage, is_last_stage).
/// Checked by: tests/costmodel/schedule/dualpipe_test.cpp, dualpipe_both_ways_test.cpp.
struct StagePlacement {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int ranks = 1;
  int chunks = 1;  ///< per rank

  [[nodiscard]] int stages() const { return ranks * chunks; }
  [[nodiscard]] int stage(int rank, int chunk) const {
    return chunk * ranks + (runs_back(chunk) ? ranks - 1 - rank : rank);
  }
  /// Whether a microbatch enters the model at this stage, which holds the embedding.
  [[nodiscard]] bool enters(int stage) const {
    return stage == 0 || (schedule == ScheduleKind::dualpipe && stage == ranks);
  }
  /// Whether it leaves it here: head and loss.
  [[nodiscard]] bool leaves(int stage) const { return stage + 1 == stages() || enters(stage + 1); }
  /// `stage` is not negative; after the last one the round goes on.
  [[nodiscard]] int rank_of(int stage) const {
    const int place = stage % ranks;
    return runs_back(stage / ranks) ? ranks - 1 - place : place;
  }
  /// Whether a message passes between `stage` and the next one: not on one rank.
  [[nodiscard]] bool sends(int stage) const {
    return stage + 1 < stages() && rank_of(stage) != rank_of(stage + 1);
  }
  /// The hop between `stage` and the next one, by its number: hop r joins rank r and the next rank.
  [[nodiscard]] int hop(int stage) const {
    return runs_back(stage / ranks) ? rank_of(stage + 1) : rank_of(stage);
  }
  /// Whether a rank holds the next stage of the model as well, and hands it its output itself.
  [[nodiscard]] bool stays(int stage) const { return !leaves(stage) && !sends(stage); }
  /// The rank with the head and the loss; of DualPipe's two the one of the second pipeline.
  [[nodiscard]] int last_rank() const { return rank_of(stages() - 1); }

 private:
  [[nodiscard]] bool runs_back(int chunk) const {
    return runs_both_ways(schedule) && chunk % 2 == 1;
  }
};

[[nodiscard]] inline StagePlacement placement_of(const ParallelPlan& plan) {
  return {plan.schedule, plan.pp, plan.vpp};
}

}  // namespace echelon
