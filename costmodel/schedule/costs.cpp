#include "costmodel/schedule/costs.hpp"

#include <cmath>

namespace echelon {
namespace {

Seconds of_rank(const RankTimes& times, Op op) {
  switch (op) {
    case Op::load_batch: return times.load_batch;
    case Op::gather_parameters: return times.gather_unit;
    case Op::reduce_gradients: return times.reduce_bucket;
    case Op::reduce_tied_embedding: return times.reduce_tied;
    case Op::norm_reduce: return times.norm_reduce;
    case Op::clip: return times.clip;
    case Op::optimizer_step: return times.optimizer;
    case Op::gather_updated: return times.gather_updated;
    case Op::zero_gradients: return times.zero_gradients;
    default: return Seconds{};
  }
}

Seconds of_chunk(const ChunkTimes& times, Op op) {
  switch (op) {
    case Op::forward: return times.forward;
    case Op::backward: return times.backward();
    case Op::backward_input: return times.recompute + times.backward_input;
    default: return times.backward_weight;
  }
}

}  // namespace

ScheduleCosts ScheduleCosts::uniform(int ranks, int chunks, ChunkTimes chunk, Seconds hop) {
  const auto p = static_cast<std::size_t>(ranks);
  return {.stages = std::vector<ChunkTimes>(p * static_cast<std::size_t>(chunks), chunk),
          .hops = std::vector<Seconds>(p, hop),
          .ranks = {}};
}

ScheduleCosts on_exact_grid(ScheduleCosts costs, int chunks, int microbatches) {
  // No step takes longer than all of its passes and messages one after the other.
  Seconds all;
  for (const ChunkTimes& chunk : costs.stages) all += chunk.total();
  for (const Seconds hop : costs.hops) all += 2.0 * chunks * hop;
  const double bound = microbatches * all.in(kSecond);
  if (bound <= 0) return costs;
  const Seconds grid{std::ldexp(1.0, std::ilogb(bound) - 51)};
  const auto round = [&](Seconds& time) { time = std::round(time.in(grid)) * grid; };
  for (ChunkTimes& chunk : costs.stages) {
    for (Seconds* time :
         {&chunk.forward, &chunk.backward_input, &chunk.backward_weight, &chunk.recompute}) {
      round(*time);
    }
  }
  for (Seconds& hop : costs.hops) round(hop);
  return costs;
}

Seconds duration_of(const ScheduleCosts& costs, const Schedule& schedule, int rank,
                    const Instruction& i) {
  const auto at = static_cast<std::size_t>(rank);
  const auto hop_after = [&](int stage) {
    return costs.hops[static_cast<std::size_t>(schedule.placement().hop(stage))];
  };
  switch (i.op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight: {
      const auto stage = static_cast<std::size_t>(schedule.stage(rank, *i.chunk));
      const Seconds whole = of_chunk(costs.stages[stage], i.op);
      return i.unit ? whole / schedule.units : whole;
    }
    case Op::send_activation:
    case Op::recv_gradient: return hop_after(schedule.stage(rank, *i.chunk));
    case Op::recv_activation:
    case Op::send_gradient: return hop_after(schedule.stage(rank, *i.chunk) - 1);
    default: return costs.ranks.empty() ? Seconds{} : of_rank(costs.ranks[at], i.op);
  }
}

}  // namespace echelon
