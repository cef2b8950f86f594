#include "runtime/executor/measured.hpp"

#include <algorithm>

namespace echelon {
namespace {

/// Time that both spans share.
Seconds shared(Seconds begin, Seconds end, const Lap& lap) {
  return std::max(Seconds{}, std::min(end, lap.end) - std::max(begin, lap.start));
}

/// Puts one rank's step together.
class Parts {
 public:
  Parts(const Program& program, const StepTimes& times) : program_(program), times_(times) {}

  CostBreakdown take() {
    Seconds free = times_.begin;
    for (const Instruction& i : program_.instructions) {
      if (i.queue != Queue::compute) continue;
      gap(free, at(i).start, waited_for(program_, times_, i, free));
      run(i, at(i));
      free = std::max(free, at(i).end);
    }
    gap(free, times_.end, last_beside(free));
    return parts_;
  }

 private:
  [[nodiscard]] const Lap& at(const Instruction& i) const { return times_.laps[i.id]; }

  /// What ends last, after `free`, on another queue.
  [[nodiscard]] const Instruction* last_beside(Seconds free) const {
    const Instruction* last = nullptr;
    for (const Instruction& i : program_.instructions) {
      if (at(i).end <= free) continue;
      free = at(i).end;
      last = &i;
    }
    return last;
  }

  void run(const Instruction& i, const Lap& lap) {
    Seconds rest = lap.end - lap.start;
    const auto take = [&](Within part, Seconds& to) {
      const Seconds time = lap.within[static_cast<std::size_t>(part)];
      to += time;
      rest = rest - time;
    };
    take(Within::recompute, parts_.recompute);
    take(Within::tp_comm, parts_.tp_comm_exposed);
    take(Within::cp_comm, parts_.cp_comm_exposed);
    take(Within::ep_comm, parts_.ep_comm_exposed);
    take(Within::host, parts_.host);
    const bool end_of_step =
        i.op == Op::clip || i.op == Op::optimizer_step || i.op == Op::zero_gradients;
    (end_of_step ? parts_.optimizer : parts_.compute) += rest;
  }

  /// The compute queue did nothing from `begin` to `end`, held up by `by`.
  void gap(Seconds begin, Seconds end, const Instruction* by) {
    if (end <= begin) return;
    const Seconds over = by == nullptr ? begin : std::clamp(at(*by).end, begin, end);
    parts_.host += end - over;
    if (by != nullptr) held_up(begin, over, *by);
  }

  void held_up(Seconds begin, Seconds end, const Instruction& by) {
    switch (by.op) {
      case Op::load_batch: parts_.data += end - begin; return;
      case Op::gather_parameters:
      case Op::gather_updated:
      case Op::reduce_gradients: parts_.dp_comm_exposed += end - begin; return;
      default: break;
    }
    Seconds transfers;  // of its queue, one after the other
    for (const Instruction& i : program_.instructions) {
      if (i.queue == by.queue) transfers += shared(begin, end, at(i));
    }
    (by.queue == Queue::reduce ? parts_.dp_comm_exposed : parts_.pp_comm_exposed) += transfers;
    parts_.fill_drain += end - begin - transfers;
  }

  const Program& program_;
  const StepTimes& times_;
  CostBreakdown parts_;
};

}  // namespace

const Instruction* waited_for(const Program& program, const StepTimes& times, const Instruction& i,
                              Seconds free) {
  const Instruction* last = nullptr;
  for (const std::uint32_t id : i.after) {
    if (times.laps[id].end <= free) continue;
    free = times.laps[id].end;
    last = &program.instructions[id];
  }
  return last;
}

CostBreakdown parts_of(const Program& program, const StepTimes& times) {
  EXPECTS(times.laps.size() == program.instructions.size(), "times of this program");
  return Parts(program, times).take();
}

CostBreakdown measured_parts(const Schedule& schedule, std::span<const StepTimes> ranks) {
  EXPECTS(!ranks.empty(), "a step has ranks");
  const StepTimes* last = &ranks.front();
  for (const StepTimes& rank : ranks) {
    if (rank.end > last->end || (rank.end == last->end && rank.rank < last->rank)) last = &rank;
  }
  return parts_of(schedule.programs[static_cast<std::size_t>(last->pipeline_rank)], *last);
}

}  // namespace echelon
