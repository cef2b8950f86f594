#include "runtime/training/measured_step.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/plan/process_grid.hpp"
#include "runtime/executor/measured_stages.hpp"

namespace echelon {

namespace {

/// Among the ranks that wait for one another in the passes of a microbatch: all that groups of
/// tensor, context and expert parallelism join, as a rank waits in one for another that waits in
/// the next.
std::vector<StepTimes> with_turns_as_compute(const ParallelPlan& plan,
                                             std::span<const StepTimes> ranks) {
  std::vector<StepTimes> out(ranks.begin(), ranks.end());
  const ProcessGrid grid(plan);
  std::map<int, StepTimes*> left;
  for (StepTimes& each : out) left[each.rank] = &each;
  while (!left.empty()) {
    std::vector<StepTimes*> peers{left.begin()->second};
    left.erase(left.begin());
    for (std::size_t at = 0; at < peers.size(); ++at) {
      for (const Axis axis : {Axis::tp, Axis::cp, Axis::ep}) {
        for (const int rank : grid.group(axis, peers[at]->rank)) {
          const auto found = left.find(rank);
          if (found == left.end()) continue;
          peers.push_back(found->second);
          left.erase(found);
        }
      }
    }
    count_turns_as_compute(peers);
  }
  return out;
}

const Instruction* find(const Program& program, Op op) {
  const auto found = std::ranges::find(program.instructions, op, &Instruction::op);
  return found == program.instructions.end() ? nullptr : &*found;
}

}  // namespace

void align_clocks(const Schedule& schedule, std::span<StepTimes> ranks) {
  const auto end_of_norm = [&](const StepTimes& rank) -> std::optional<Seconds> {
    const Instruction* norm =
        find(schedule.programs[static_cast<std::size_t>(rank.pipeline_rank)], Op::norm_reduce);
    if (norm == nullptr) return {};
    return rank.spans[norm->id].end;
  };
  if (ranks.empty()) return;
  const std::optional<Seconds> reference = end_of_norm(ranks.front());
  for (StepTimes& rank : ranks.subspan(1)) {
    const std::optional<Seconds> own = end_of_norm(rank);
    if (!own || !reference) return;
    const Seconds off = *reference - *own;
    const Seconds step = std::max(rank.end - rank.begin, ranks.front().end - ranks.front().begin);
    if (std::max(off, -off) <= step) continue;
    rank.begin += off;
    rank.end += off;
    for (InstructionSpan& span : rank.spans) {
      span.start += off;
      span.end += off;
    }
  }
}

void begin_with_arrivals(const Schedule& schedule, std::span<StepTimes> ranks) {
  std::map<std::int32_t, Seconds> shortest;  // by position in the order of all communications
  const auto transfer = [](const InstructionSpan& span) {
    return span.end - span.start - span.within[static_cast<std::size_t>(Within::norm)];
  };
  const auto each = [&](const auto& use) {
    for (StepTimes& rank : ranks) {
      const Program& program = schedule.programs[static_cast<std::size_t>(rank.pipeline_rank)];
      for (const Instruction& i : program.instructions) {
        if (i.sequence) use(*i.sequence, rank.spans[i.id]);
      }
    }
  };
  each([&](std::int32_t sequence, const InstructionSpan& span) {
    const auto [at, is_first] = shortest.emplace(sequence, transfer(span));
    if (!is_first) at->second = std::min(at->second, transfer(span));
  });
  each([&](std::int32_t sequence, InstructionSpan& span) {
    const Seconds waited = span.end - span.start - shortest.at(sequence);
    span.start += waited;
    span.waited += waited;
  });
}

void write_measured(const Schedule& schedule, std::vector<StepTimes> ranks, Prediction measured,
                    RunReport& report) {
  EXPECTS(!ranks.empty(), "a step has ranks");
  align_clocks(schedule, ranks);
  if (report.backend == "cuda") begin_with_arrivals(schedule, ranks);
  Seconds begin = ranks.front().begin;
  for (const StepTimes& each : ranks) begin = std::min(begin, each.begin);
  for (const StepTimes& each : ranks) {
    for (std::size_t id = 0; id < each.spans.size(); ++id) {
      report.spans.push_back({each.rank, static_cast<std::uint32_t>(id),
                              each.spans[id].start - begin, each.spans[id].end - begin});
    }
  }
  const Prediction& predicted = report.plan.predicted;
  measured.evidence = Evidence::measured;
  MeasuredStep step = measured_step(schedule, with_turns_as_compute(report.plan.plan, ranks));
  measured.time = step.parts;
  measured.stage_times = std::move(step.stages);
  measured.closed_form.reset();
  measured.low = measured.high = measured.time.total();
  measured.tokens_per_second =
      report.plan.job.tokens_per_step() / measured.time.total().in(kSecond);
  const double faster = measured.tokens_per_second / predicted.tokens_per_second;
  measured.model_flops_per_gpu = predicted.model_flops_per_gpu * faster;
  measured.mfu = predicted.mfu * faster;
  report.measured = std::move(measured);
}

}  // namespace echelon
