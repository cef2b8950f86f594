#include "planner/space/contradictions.hpp"

#include <fmt/format.h>

#include "planner/space/legality.hpp"

namespace echelon {

Status check_recompute_counts(const PlanConstraints& pinned) {
  using P = ParallelPlan;
  const Recompute policy = pinned.values().recompute;
  const auto against = [&](const char* flag, const char* expected) {
    return input_error(flag, fmt::format("given with --recompute {}", name_of(policy)), expected,
                       "drop one of the two flags");
  };
  if (!pinned.has<&P::recompute>() || policy == Recompute::mixed) return Done{};
  if (pinned.has<&P::selective_layers>()) return against("--selective-layers", "--recompute mixed");
  if (pinned.has<&P::recompute_layers>() && policy != Recompute::full) {
    return against("--recompute-layers", "--recompute full or mixed");
  }
  return Done{};
}

namespace {

/// What is pinned of overlap of expert communication, CUDA graphs and recomputation.
ParallelPlan policy_asked(const PlanConstraints& c) {
  using P = ParallelPlan;
  ParallelPlan asked = c.values();
  if (c.has<&P::recompute>()) return asked;
  asked.recompute = c.has<&P::recompute_layers>()    ? Recompute::full
                    : c.has<&P::recompute_modules>() ? Recompute::selective
                                                     : Recompute::none;
  return asked;
}

}  // namespace

Status check_contradictions(const PlanRequest& request) {
  using P = ParallelPlan;
  const PlanConstraints& c = request.constraints;
  const ParallelPlan& values = c.values();
  if (Status counts = check_recompute_counts(c); !counts) return counts;
  if (c.has<&P::dispatcher>() && values.dispatcher != Dispatcher::alltoall &&
      request.model.moe.experts == 0) {
    return input_error(
        "--dispatcher",
        fmt::format("{} for {}, without experts", name_of(values.dispatcher), request.model.name),
        "a model with experts");
  }
  if (c.has<&P::recompute_modules>()) {
    ParallelPlan asked = values;
    if (!c.has<&P::recompute>()) asked.recompute = Recompute::selective;
    asked.overlap_ep = asked.overlap_shared = false;
    asked.cuda_graphs = CudaGraphs::none;
    if (const auto broken = check_policy(request.model, request.job, request.framework, asked)) {
      return input_error("--recompute-modules", broken->detail,
                         "modules that the framework has for the model and the precision, with "
                         "--recompute selective");
    }
  }
  if (const auto broken = check_offload(request.model, request.framework, values)) {
    return input_error(
        "--offload-modules", broken->detail,
        "modules that the framework and the model have and that no layer recomputes");
  }
  if (const auto broken = check_recompute_of_quantized(request.job, values);
      broken && c.has<&P::recompute>()) {
    return input_error("--recompute", broken->detail, "--recompute none or full");
  }
  const bool mixed =
      c.has<&P::recompute>() ? values.recompute == Recompute::mixed : c.has<&P::selective_layers>();
  if (mixed && !request.framework.mixed_recompute) {
    return input_error(c.has<&P::recompute>() ? "--recompute" : "--selective-layers",
                       fmt::format("recomputes some layers whole and of others only attention, "
                                   "which {} cannot",
                                   request.framework.name),
                       "--recompute none, selective or full");
  }
  if (const auto broken =
          check_policy(request.model, request.job, request.framework, policy_asked(c))) {
    const bool overlaps = values.overlap_ep || values.overlap_shared;
    return input_error(overlaps ? "--overlap" : "--cuda-graphs", broken->detail,
                       values.overlap_shared ? "modules without shared_experts"
                                             : "--recompute none or selective, without moe",
                       "drop one of the two flags");
  }
  if (c.has<&P::layers_per_stage>() && !c.has<&P::pp>()) {
    return input_error("--layers-per-stage", "given without --pp", "--pp with one stage per entry",
                       fmt::format("add --pp {}", values.layers_per_stage.size()));
  }
  const bool v = runs_both_ways(values.schedule);
  if (c.has<&P::schedule>() && values.schedule != ScheduleKind::interleaved && c.has<&P::vpp>() &&
      (v ? values.vpp != 2 : values.vpp > 1)) {
    return input_error("--vpp",
                       fmt::format("{} with --schedule {}", values.vpp, name_of(values.schedule)),
                       v ? "--vpp 2" : "--schedule interleaved", "drop one of the two flags");
  }
  if (c.has<&P::microbatch_group>() && values.microbatch_group > 1) {
    const auto against = [&](const std::string& flag, const char* expected) {
      return input_error("--microbatch-group-size",
                         fmt::format("{} with {}", values.microbatch_group, flag), expected,
                         "drop one of the two flags");
    };
    if (c.has<&P::pp>() && values.pp == 1) return against("--pp 1", "--pp 2 or more");
    if (c.has<&P::vpp>() && values.vpp == 1) return against("--vpp 1", "--vpp 2 or more");
    if (c.has<&P::schedule>() && values.schedule != ScheduleKind::interleaved) {
      return against(fmt::format("--schedule {}", name_of(values.schedule)),
                     "--schedule interleaved");
    }
  }
  if (c.has<&P::bucket>()) {
    ParallelPlan asked = values;
    if (!c.has<&P::dp>()) asked.dp = 2;  // what is open could have buckets
    const std::string why = why_no_buckets(request.framework, asked);
    if (!why.empty()) return input_error("--bucket", why, "a plan that reduces in buckets");
  }
  return Done{};
}

}  // namespace echelon
