#include "planner/space/contradictions.hpp"

#include <fmt/format.h>

#include "planner/space/legality.hpp"

namespace echelon {

Status check_recompute_counts(const PlanConstraints& pinned) {
  const auto against = [&](const char* flag, const char* expected) {
    return input_error(flag, fmt::format("with --recompute {}", name_of(*pinned.recompute)),
                       expected, "drop one of the two flags");
  };
  if (!pinned.recompute || *pinned.recompute == Recompute::mixed) return Done{};
  if (pinned.selective_layers) return against("--selective-layers", "--recompute mixed");
  if (pinned.recompute_layers && *pinned.recompute != Recompute::full) {
    return against("--recompute-layers", "--recompute full or mixed");
  }
  return Done{};
}

Status check_contradictions(const PlanRequest& request) {
  const PlanConstraints& c = request.constraints;
  if (Status counts = check_recompute_counts(c); !counts) return counts;
  if (c.layers_per_stage && !c.pp) {
    return input_error("--layers-per-stage", "no --pp", "--pp with as many stages",
                       fmt::format("add --pp {}", c.layers_per_stage->size()));
  }
  if (c.schedule && *c.schedule != ScheduleKind::interleaved && c.vpp && *c.vpp > 1) {
    return input_error("--vpp", fmt::format("{} with --schedule {}", *c.vpp, name_of(*c.schedule)),
                       "--schedule interleaved", "drop one of the two flags");
  }
  if (c.bucket) {
    ParallelPlan asked;  // what is open could have buckets
    asked.dp = c.dp.value_or(2);
    asked.cp = c.cp.value_or(1);
    asked.zero = c.zero.value_or(0);
    asked.overlap_dp = c.overlap_dp.value_or(true);
    const std::string why = why_no_buckets(request.stack, asked);
    if (!why.empty()) return input_error("--bucket", why, "a plan that reduces in buckets");
  }
  return Done{};
}

}  // namespace echelon
