#include "runtime/executor/measured.hpp"

#include <algorithm>
#include <utility>

#include "core/schedule/stage_waits.hpp"
#include "runtime/executor/measured_stages.hpp"

namespace echelon {
namespace {

/// Time that both spans share.
Seconds shared(Seconds begin, Seconds end, Seconds from, Seconds to) {
  return std::max(Seconds{}, std::min(end, to) - std::max(begin, from));
}

Seconds within(const InstructionSpan& span, Within part) {
  return span.within[static_cast<std::size_t>(part)];
}

Seconds without_core(const InstructionSpan& span) {
  Seconds sum = within(span, Within::kernels_without_core);
  for (const PassComm& each : kPassComms) sum += within(span, each.without_core);
  return sum;
}

/// Of a rank, in a part of its step: its instructions' times without a core, spread evenly.
Seconds without_core(const StepTimes& rank, Seconds begin, Seconds end) {
  Seconds sum;
  for (const InstructionSpan& span : rank.spans) {
    if (span.end > span.start)
      sum +=
          shared(begin, end, span.start, span.end) / (span.end - span.start) * without_core(span);
  }
  return sum;
}

bool is_message(Op op) {
  return op == Op::send_activation || op == Op::recv_activation || op == Op::send_gradient ||
         op == Op::recv_gradient;
}

bool is_pass(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::backward_input ||
         op == Op::backward_weight;
}

struct OneRank {
  CostBreakdown parts;
  Seconds ending;  ///< its own work after its last pass
};

/// Assembles one rank's step.
class Parts {
 public:
  Parts(const Program& program, const StepTimes& times, std::span<const StepTimes> all)
      : program_(program), times_(times), all_(all) {
    for (const Instruction& i : program.instructions) pipeline_ = pipeline_ || is_message(i.op);
  }

  OneRank compute() {
    EXPECTS(times_.spans.size() == program_.instructions.size(), "times of this program");
    Seconds free = times_.begin;
    Seconds passed = free;  // with the last pass
    Seconds waited;         // until then
    for (const Instruction& i : program_.instructions) {
      if (i.queue != Queue::compute) continue;
      const Instruction* by = waited_for(program_, times_, i, free);
      gap(free, at(i).start, by != nullptr ? by : just_over(i, free));
      run(i, at(i));
      free = std::max(free, at(i).end);
      if (!is_pass(i.op)) continue;
      passed = free;
      waited = parts_.fill_drain;
    }
    drain(free);
    return {parts_, times_.end - passed - (parts_.fill_drain - waited)};
  }

 private:
  [[nodiscard]] const InstructionSpan& at(const Instruction& i) const { return times_.spans[i.id]; }

  /// The predecessor of `i` on another queue that ended before `free`, but by less than the delay
  /// of `i`: its own thread had not reported it yet.
  [[nodiscard]] const Instruction* just_over(const Instruction& i, Seconds free) const {
    const Instruction* last = nullptr;
    Seconds end = free - (at(i).start - free);
    for (const std::uint32_t id : i.after) {
      const Instruction& before = program_.instructions[id];
      if (before.queue == i.queue || times_.spans[id].end <= end) continue;
      end = times_.spans[id].end;
      last = &before;
    }
    return last;
  }

  /// After the last instruction. Another stage waits for a message that is still in transit from
  /// here: here the rest of the step is bubble, as core/schedule/stage_waits.hpp counts it.
  void drain(Seconds free) {
    const Instruction* last = last_beside(free);
    if (last == nullptr || (last->op != Op::send_activation && last->op != Op::send_gradient))
      return gap(free, times_.end, last);
    const Seconds turns = turns_of_others(free, times_.end, times_.end - free);
    parts_.compute += turns;
    parts_.fill_drain += times_.end - free - turns;
  }

  /// The instruction that ends last, after `free`, on another queue.
  [[nodiscard]] const Instruction* last_beside(Seconds free) const {
    const Instruction* last = nullptr;
    for (const Instruction& i : program_.instructions) {
      if (at(i).end <= free) continue;
      free = at(i).end;
      last = &i;
    }
    return last;
  }

  void run(const Instruction& i, const InstructionSpan& span) {
    Seconds rest = span.end - span.start;
    const auto compute = [&](Within part, Seconds& to) {
      to += within(span, part);
      rest -= within(span, part);
    };
    compute(Within::recompute, parts_.recompute);
    compute(Within::tp_comm, parts_.exposed[Axis::tp]);
    compute(Within::cp_comm, parts_.exposed[Axis::cp]);
    compute(Within::ep_comm, parts_.exposed[Axis::ep]);
    compute(Within::dp_comm, parts_.exposed[Axis::dp]);
    compute(Within::host, parts_.host);
    const bool end_of_step =
        i.op == Op::clip || i.op == Op::optimizer_step || i.op == Op::zero_gradients;
    (end_of_step ? parts_.optimizer : parts_.compute) += rest;
  }

  /// The compute queue was idle from `begin` to `end`, delayed by `by`.
  void gap(Seconds begin, Seconds end, const Instruction* by) {
    if (end <= begin) return;
    if (by == nullptr) {
      parts_.host += end - begin;
      return;
    }
    const Seconds over = std::clamp(at(*by).end, begin, end);
    of(by->op) += end - over;  // waking up
    held_up(begin, over, *by);
  }

  /// The part that counts the wait for a kind of instruction once all its members have arrived.
  Seconds& of(Op op) {
    if (op == Op::load_batch) return parts_.data;
    if (op == Op::norm_reduce) return parts_.optimizer;
    return is_message(op) ? parts_.exposed[Axis::pp] : parts_.exposed[Axis::dp];
  }

  void held_up(Seconds begin, Seconds end, const Instruction& by) {
    if (by.op == Op::load_batch) {
      parts_.data += end - begin;
      return;
    }
    const bool from_the_first = by.op == Op::gather_parameters || by.op == Op::gather_updated ||
                                by.op == Op::reduce_gradients;
    Seconds rest = end - begin;
    Seconds data_ranks;  // of it, waiting for other data-parallel ranks
    for (const Instruction& i : program_.instructions) {
      if (i.queue != by.queue) continue;
      const InstructionSpan& span = at(i);
      Seconds own = shared(begin, end, span.start, span.end);
      const Seconds waits = shared(begin, end, span.start - span.waited, span.start);
      if (i.op == Op::norm_reduce && span.waited > Seconds{})
        own += std::min(waits, within(span, Within::norm));  // otherwise it is in the span
      of(i.op) += own;
      rest -= own;
      if (is_message(i.op) || i.op == Op::norm_reduce || i.op == Op::reduce_tied_embedding)
        continue;
      data_ranks += waits;
      rest -= waits;
    }
    rest = std::max(Seconds{}, rest);
    if (from_the_first) data_ranks += std::exchange(rest, {});
    Seconds turns = turns_of_others(begin, end, data_ranks + rest);
    const Seconds first = std::min(turns, rest);
    parts_.compute += turns;
    (pipeline_ ? parts_.fill_drain : of(by.op)) += rest - first;
    parts_.exposed[Axis::dp] += data_ranks - (turns - first);
  }

  /// Of `waits` between two times: as long as one of the other ranks had no core meanwhile.
  [[nodiscard]] Seconds turns_of_others(Seconds begin, Seconds end, Seconds waits) const {
    Seconds longest_wait;
    for (const StepTimes& rank : all_) {
      if (rank.rank != times_.rank)
        longest_wait = std::max(longest_wait, without_core(rank, begin, end));
    }
    return std::min(longest_wait, waits);
  }

  const Program& program_;
  const StepTimes& times_;
  std::span<const StepTimes> all_;
  bool pipeline_ = false;
  CostBreakdown parts_;
};

}  // namespace

const Instruction* waited_for(const Program& program, const StepTimes& times, const Instruction& i,
                              Seconds free) {
  const Instruction* last = nullptr;
  for (const std::uint32_t id : i.after) {
    if (times.spans[id].end <= free) continue;
    free = times.spans[id].end;
    last = &program.instructions[id];
  }
  return last;
}

void count_turns_as_compute(std::span<StepTimes* const> peers) {
  if (peers.size() < 2) return;
  for (std::size_t id = 0; id < peers.front()->spans.size(); ++id) {
    for (StepTimes* const rank : peers) {
      InstructionSpan& span = rank->spans[id];
      Seconds others;
      for (const StepTimes* const other : peers) {
        if (other != rank) others = std::max(others, without_core(other->spans[id]));
      }
      Seconds waits;
      for (const PassComm& each : kPassComms) waits += within(span, each.peers);
      const double share = waits > Seconds{} ? std::min(1.0, others / waits) : 0;
      for (const PassComm& each : kPassComms) {
        const Seconds turns = share * within(span, each.peers) + within(span, each.without_core);
        Seconds& comm = span.within[static_cast<std::size_t>(each.comm)];
        comm -= std::min(comm, turns);
      }
    }
  }
}

CostBreakdown step_parts_of(const Program& program, const StepTimes& times,
                            std::span<const StepTimes> all) {
  return Parts(program, times, all).compute().parts;
}

MeasuredStep measured_step(const Schedule& schedule, std::span<const StepTimes> ranks) {
  EXPECTS(!ranks.empty(), "a step has ranks");
  const std::size_t stages = schedule.programs.size();
  Seconds longest;
  std::vector<double> count(stages, 0);  // of a stage's ranks
  for (const StepTimes& rank : ranks) {
    longest = std::max(longest, rank.end - rank.begin);
    ++count[static_cast<std::size_t>(rank.pipeline_rank)];
  }

  // Step 1: means over the ranks of every stage, of their parts and of every instruction.
  std::vector<CostBreakdown> parts(stages);
  std::vector<RankWaiting> waits(stages);
  std::vector<std::vector<Seconds>> takes(stages);
  for (const StepTimes& rank : ranks) {
    const auto stage = static_cast<std::size_t>(rank.pipeline_rank);
    const double share = 1 / count[stage];
    OneRank own = Parts(schedule.programs[stage], rank, ranks).compute();
    (stages > 1 ? own.parts.fill_drain : own.parts.host) += longest - (rank.end - rank.begin);
    add_share(own.parts, share, parts[stage]);
    waits[stage].ending += share * own.ending;
    takes[stage].resize(rank.spans.size());
    for (std::size_t id = 0; id < rank.spans.size(); ++id)
      takes[stage][id] += share * (rank.spans[id].end - rank.spans[id].start);
  }

  // Step 2: waiting for other stages.
  for (std::size_t stage = 0; stage < stages; ++stage) {
    waits[stage].waiting = parts[stage].fill_drain;
  }
  const auto time = [&](int stage, const Instruction& i) {
    return takes[static_cast<std::size_t>(stage)][i.id];
  };
  const std::vector<StageWaits> divided = divide_waiting(schedule, time, waits);
  MeasuredStep step;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    if (stages > 1) {
      parts[stage].fill_drain = divided[stage].fill_drain;
      parts[stage].imbalance = divided[stage].imbalance;
      parts[stage].exposed[Axis::pp] += divided[stage].messages;
    }
    step.stages.push_back(stage_time(parts[stage]));
    add_share(parts[stage], 1 / static_cast<double>(stages), step.parts);
  }
  return step;
}

}  // namespace echelon
