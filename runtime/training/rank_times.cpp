#include "runtime/training/rank_times.hpp"

#include <algorithm>
#include <map>

namespace echelon {

Seconds own_compute(const Program& program, std::span<const StepTimes> steps) {
  constexpr Within kNotOwn[] = {Within::tp_comm, Within::cp_comm, Within::ep_comm, Within::dp_comm,
                                Within::kernels_without_core};
  Seconds total;
  for (const StepTimes& step : steps) {
    for (const Instruction& i : program.instructions) {
      if (i.queue != Queue::compute || i.id >= step.spans.size()) continue;
      const InstructionSpan& span = step.spans[i.id];
      Seconds own = span.end - span.start;
      for (const Within part : kNotOwn) own = own - span.within[static_cast<std::size_t>(part)];
      total += std::max(Seconds{}, own);
    }
  }
  return steps.empty() ? Seconds{} : total / static_cast<double>(steps.size());
}

void compare_ranks(std::vector<RankTime>& ranks) {
  std::map<int, std::vector<Seconds>> of_stage;
  for (const RankTime& each : ranks) of_stage[each.stage].push_back(each.computes);
  for (auto& [stage, times] : of_stage) std::sort(times.begin(), times.end());
  for (RankTime& each : ranks) {
    const std::vector<Seconds>& times = of_stage.at(each.stage);
    each.behind = std::max(Seconds{}, each.computes - times[(times.size() - 1) / 2]);
  }
}

}  // namespace echelon
