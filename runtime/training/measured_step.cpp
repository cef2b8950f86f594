#include "runtime/training/measured_step.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/plan/process_grid.hpp"
#include "runtime/executor/measured_stages.hpp"

namespace echelon {

namespace {

/// In every tensor-parallel group.
std::vector<StepTimes> with_turns_as_compute(const ParallelPlan& plan,
                                             std::span<const StepTimes> ranks) {
  std::vector<StepTimes> out(ranks.begin(), ranks.end());
  const ProcessGrid grid(plan);
  if (grid.degree(Axis::tp) == 1) return out;
  std::map<int, StepTimes*> of_rank;
  for (StepTimes& each : out) of_rank[each.rank] = &each;
  for (const auto& [rank, times] : of_rank) {
    if (grid.coordinates(rank).tp > 0) continue;
    std::vector<StepTimes*> peers;
    for (const int each : grid.group(Axis::tp, rank)) peers.push_back(of_rank.at(each));
    count_turns_as_compute(peers);
  }
  return out;
}

}  // namespace

void write_measured(const Schedule& schedule, std::span<const StepTimes> ranks, Prediction measured,
                    RunReport& report) {
  EXPECTS(!ranks.empty(), "a step has ranks");
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
