// How long each instruction takes: a small table in place of the cost model.
#pragma once

#include <vector>

#include "core/base/units.hpp"
#include "core/schedule/schedule.hpp"

namespace echelon {

/// One chunk and one microbatch. A backward takes recompute + backward_input + backward_weight, an
/// input gradient recompute + backward_input: what is recomputed is part of the backward.
struct ChunkTimes {
  Seconds forward{};
  Seconds backward_input{};
  Seconds backward_weight{};
  Seconds recompute{};

  [[nodiscard]] Seconds backward() const { return recompute + backward_input + backward_weight; }
  [[nodiscard]] Seconds total() const { return forward + backward(); }
};

/// Everything else one rank does.
struct RankTimes {
  Seconds load_batch{};     ///< one microbatch, host to device
  Seconds gather_unit{};    ///< ZeRO-3, parameters of one unit
  Seconds reduce_bucket{};  ///< gradients of one bucket
  Seconds reduce_tied{};    ///< tied embedding between the first and the last rank
  Seconds norm_reduce{};    ///< gradient norm: the pass over the gradients, and over all ranks
  Seconds clip{};
  Seconds optimizer{};
  Seconds gather_updated{};  ///< ZeRO-1/2, parameters of one chunk
  Seconds zero_gradients{};
};

struct ScheduleCosts {
  std::vector<ChunkTimes> stages;  ///< by StagePlacement::stage
  std::vector<Seconds> hops;       ///< a message between rank r and rank (r + 1) mod ranks
  std::vector<RankTimes> ranks;    ///< empty: no time at all

  /// The same for every stage.
  static ScheduleCosts uniform(int ranks, int chunks, ChunkTimes chunk, Seconds hop = {});
};

/// The times of chunks and messages rounded to multiples of a power of two, so small that this
/// changes no step by more than a millionth of a millionth per pass, and so large that sums of
/// times within a step of so many microbatches are exact: what ends at the same time then does so
/// in whatever order its times were added. `ranks` stay as they are.
[[nodiscard]] ScheduleCosts on_exact_grid(ScheduleCosts costs, int chunks, int microbatches);

/// Time of one instruction, both ends of a message alike.
[[nodiscard]] Seconds duration_of(const ScheduleCosts& costs, const Schedule& schedule, int rank,
                                  const Instruction& instruction);

}  // namespace echelon
