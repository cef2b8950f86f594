#include "core/schedule/stage_waits.hpp"

#include <algorithm>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

/// Times of all passes of a step per rank, and of the messages between them.
struct Passes {
  std::vector<Seconds> of_rank;  ///< sum per rank
  Seconds longest;               ///< sum over passes of the maximum over ranks
  Seconds message;               ///< mean
};

/// Index of the pass of an instruction: forwards first, then backwards (with their halves and
/// units), by chunk and microbatch.
std::size_t pass_index(const Schedule& schedule, const Instruction& i) {
  const int pass = i.op == Op::forward ? 0 : schedule.chunks;
  return static_cast<std::size_t>(pass + *i.chunk) *
             static_cast<std::size_t>(schedule.microbatches) +
         static_cast<std::size_t>(*i.microbatch);
}

Passes passes_of(const Schedule& schedule, const InstructionTime& time) {
  const std::size_t count = 2 * static_cast<std::size_t>(schedule.chunks) *
                            static_cast<std::size_t>(schedule.microbatches);
  std::vector<Seconds> longest(count);
  Passes out;
  Seconds transfers;
  double messages = 0;
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    std::vector<Seconds> own(count);
    for (const Instruction& i : schedule.programs[rank].instructions) {
      switch (i.op) {
        case Op::forward:
        case Op::backward:
        case Op::backward_input:
        case Op::backward_weight:
          own[pass_index(schedule, i)] += time(static_cast<int>(rank), i);
          break;
        case Op::recv_activation:
        case Op::recv_gradient:
          transfers += time(static_cast<int>(rank), i);
          ++messages;
          break;
        default: break;
      }
    }
    Seconds sum;
    for (std::size_t k = 0; k < count; ++k) {
      sum += own[k];
      longest[k] = std::max(longest[k], own[k]);
    }
    out.of_rank.push_back(sum);
  }
  for (const Seconds each : longest) out.longest += each;
  if (messages > 0) out.message = transfers / messages;
  return out;
}

}  // namespace

StageWaits divide_waiting(Seconds waiting, Seconds imposed, Seconds slower) {
  constexpr double kRounding = 1e-9;
  const auto part = [&](Seconds limit, Seconds rest) {
    return rest - limit <= kRounding * waiting ? rest : std::clamp(limit, Seconds{}, rest);
  };
  StageWaits out;
  out.fill_drain = part(imposed, waiting);
  out.imbalance = part(slower, waiting - out.fill_drain);
  out.messages = waiting - out.fill_drain - out.imbalance;
  return out;
}

Seconds imposed_waiting(ScheduleKind kind, int chunks, std::int64_t microbatches, Seconds others,
                        Seconds own) {
  const double m = static_cast<double>(microbatches);
  switch (kind) {
    case ScheduleKind::gpipe:
    case ScheduleKind::one_f_one_b: return others;
    case ScheduleKind::interleaved: return others / chunks;
    case ScheduleKind::zero_bubble_h1:
      return std::max(others / 3, (2 * (others + m * own) + own) / 3 - m * own);
    case ScheduleKind::dualpipe_v: return others / 3;
    case ScheduleKind::dualpipe: return (others - own) / 6;
  }
  return others;
}

std::vector<StageWaits> divide_waiting(const Schedule& schedule, const InstructionTime& time,
                                       std::span<const RankWaiting> ranks) {
  const std::size_t p = schedule.programs.size();
  EXPECTS(ranks.size() == p, "one waiting time per pipeline rank");
  if (p < 2) return std::vector<StageWaits>(p);
  const Passes passes = passes_of(schedule, time);
  const double m = schedule.microbatches;
  Seconds all;
  Seconds ending;
  for (std::size_t rank = 0; rank < p; ++rank) {
    all += passes.of_rank[rank] / m;
    ending = std::max(ending, ranks[rank].ending);
  }
  std::vector<StageWaits> out;
  for (std::size_t rank = 0; rank < p; ++rank) {
    const Seconds own = passes.of_rank[rank] / m;
    // Of the 2(p − 1) messages of a microbatch, those that this rank receives are its own
    // communication.
    const double received = rank == 0 || rank + 1 == p ? 1 : 2;
    const Seconds passing = (2 * (static_cast<double>(p) - 1) - received) * passes.message;
    const Seconds imposed =
        imposed_waiting(schedule.kind, schedule.chunks, schedule.microbatches, all - own, own) +
        passing;
    const Seconds slower = passes.longest - passes.of_rank[rank] + ending - ranks[rank].ending;
    out.push_back(divide_waiting(ranks[rank].waiting, imposed, slower));
  }
  return out;
}

}  // namespace echelon
