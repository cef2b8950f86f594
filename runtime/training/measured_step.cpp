#include "runtime/training/measured_step.hpp"

#include <algorithm>
#include <utility>

namespace echelon {

void write_measured(const Schedule& schedule, std::span<const StepTimes> ranks,
                    PredictedCosts measured, RunReport& report) {
  EXPECTS(!ranks.empty(), "a step has ranks");
  Seconds begin = ranks.front().begin;
  for (const StepTimes& each : ranks) begin = std::min(begin, each.begin);
  for (const StepTimes& each : ranks) {
    for (std::size_t id = 0; id < each.laps.size(); ++id) {
      report.spans.push_back({each.rank, static_cast<std::uint32_t>(id),
                              each.laps[id].start - begin, each.laps[id].end - begin});
    }
  }
  const PredictedCosts& predicted = report.plan.predicted;
  measured.evidence = Evidence::measured;
  measured.time = measured_parts(schedule, ranks);
  measured.stage_times.clear();  // those of the rank that finishes last alone are known
  measured.simulated.reset();
  measured.low = measured.high = measured.time.total();
  measured.tokens_per_second =
      report.plan.job.tokens_per_step() / measured.time.total().in(kSecond);
  const double faster = measured.tokens_per_second / predicted.tokens_per_second;
  measured.model_flops_per_gpu = predicted.model_flops_per_gpu * faster;
  measured.mfu = predicted.mfu * faster;
  report.measured = std::move(measured);
}

}  // namespace echelon
