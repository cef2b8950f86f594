#include "planner/candidates.hpp"

#include <algorithm>

#include "planner/legality.hpp"

namespace echelon {
namespace {

std::vector<int> narrowed(const std::vector<std::int64_t>& values, std::int64_t most) {
  std::vector<int> out;
  for (const std::int64_t value : values) {
    if (value <= most) out.push_back(static_cast<int>(value));
  }
  return out;
}

bool equal_or_ends_less(int layers, int chunks) {
  return layers % chunks == 0 || (layers + 2) % chunks == 0;
}

/// Recomputed layers the user pinned: one per stage, or one value for all, which a stage with fewer
/// layers caps (a value no stage can hold is left for check_plan to reject).
int pinned_recompute(const std::vector<int>& pinned, const std::vector<int>& layers,
                     std::size_t stage) {
  if (pinned.size() != 1) return pinned[stage];
  const int most = *std::max_element(layers.begin(), layers.end());
  return pinned.front() <= most ? std::min(pinned.front(), layers[stage]) : pinned.front();
}

}  // namespace

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low;
  std::vector<std::int64_t> high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::optional<std::vector<int>> split_layers(int layers, int pp, int vpp) {
  if (layers < pp * vpp) return std::nullopt;
  if (vpp == 1) return balanced_layers(layers, pp);
  const int chunks = pp * vpp;
  if (layers % chunks == 0) {
    return std::vector<int>(static_cast<std::size_t>(pp), layers / pp);
  }
  if ((layers + 2) % chunks != 0 || pp < 2) return std::nullopt;
  std::vector<int> split(static_cast<std::size_t>(pp), (layers + 2) / pp);
  --split.front();
  --split.back();
  if (split.front() < vpp) return std::nullopt;
  return split;
}

bool fill_plan(const PlanRequest& request, const Tuple& tuple, ParallelPlan& plan) {
  const PlanConstraints& pinned = request.constraints;
  plan.tp = tuple.tp;
  plan.cp = pinned.cp.value_or(1);
  plan.ep = pinned.ep.value_or(1);
  plan.etp = pinned.etp.value_or(1);
  plan.dp = tuple.dp;
  plan.pp = tuple.pp;
  plan.vpp = tuple.vpp;
  plan.microbatch = tuple.microbatch;
  plan.zero = tuple.zero;
  plan.shard_group = tuple.shard_group;
  plan.sequence_parallel = tuple.sequence_parallel;
  plan.recompute = tuple.recompute;
  plan.schedule = pinned.schedule.value_or(tuple.vpp > 1 ? ScheduleKind::interleaved
                                                         : ScheduleKind::one_f_one_b);
  plan.overlap_dp = pinned.overlap_dp.value_or(true);
  plan.overlap_tp = pinned.overlap_tp.value_or(false);
  plan.overlap_pp = pinned.overlap_pp.value_or(tuple.vpp > 1);

  const auto stages = static_cast<std::size_t>(tuple.pp);
  if (pinned.layers_per_stage) {
    plan.layers_per_stage = *pinned.layers_per_stage;
  } else if (auto split = split_layers(request.model.layers, tuple.pp, tuple.vpp)) {
    plan.layers_per_stage = std::move(*split);
  } else {
    return false;
  }
  plan.recompute_layers.assign(stages, 0);
  if (tuple.recompute == Recompute::full && plan.layers_per_stage.size() == stages) {
    for (std::size_t s = 0; s < stages; ++s) {
      plan.recompute_layers[s] =
          pinned.recompute_layers
              ? pinned_recompute(*pinned.recompute_layers, plan.layers_per_stage, s)
              : std::min(tuple.recompute_layers, plan.layers_per_stage[s]);
    }
  }
  return true;
}

AxisValues AxisValues::of(const PlanRequest& request) {
  const PlanConstraints& pinned = request.constraints;
  const std::vector<int> all =
      narrowed(divisors(request.cluster.gpus()), request.cluster.gpus());
  AxisValues values{all, all};
  if (pinned.tp) values.tp = {*pinned.tp};
  if (pinned.pp) values.pp = {*pinned.pp};
  return values;
}

std::vector<int> microbatch_values(const PlanRequest& request, int dp) {
  if (request.constraints.microbatch) return {*request.constraints.microbatch};
  if (request.job.global_batch % dp != 0) return {1};  // illegal whatever its size: counted once
  const std::int64_t local = request.job.global_batch / dp;
  return narrowed(divisors(local), 1 << 20);
}

std::vector<int> vpp_values(const PlanRequest& request, int pp) {
  const PlanConstraints& pinned = request.constraints;
  if (pinned.vpp) return {*pinned.vpp};
  std::vector<int> values;
  const bool wants_interleaved = pinned.schedule == ScheduleKind::interleaved;
  if (!wants_interleaved) values.push_back(1);
  const bool forbids = pinned.schedule.has_value() && !wants_interleaved;
  if (pp == 1 || forbids || !request.stack.interleaved) return values;
  for (int vpp = 2; vpp * pp <= request.model.layers; ++vpp) {
    if (equal_or_ends_less(request.model.layers, pp * vpp)) values.push_back(vpp);
  }
  return values;
}

std::vector<int> zero_values(const PlanRequest& request, int dp) {
  if (request.constraints.zero) return {*request.constraints.zero};
  std::vector<int> values;
  for (int zero = 0; zero <= 3; ++zero) {
    if (request.stack.zero_allowed[zero] && (dp > 1 || zero == 0)) values.push_back(zero);
  }
  if (values.empty()) values.push_back(0);
  return values;
}

std::vector<bool> sequence_parallel_values(const PlanRequest& request, int tp) {
  if (request.constraints.sequence_parallel) {
    // A search over tp meets tp = 1, where the question does not arise.
    const bool wanted = *request.constraints.sequence_parallel;
    return {wanted && (tp > 1 || request.constraints.tp.has_value())};
  }
  if (tp == 1 || !request.stack.sequence_parallel) return {false};
  if (request.stack.sequence_parallel_always) return {true};
  return {false, true};
}

std::vector<Recompute> recompute_values(const PlanRequest& request) {
  if (request.constraints.recompute) return {*request.constraints.recompute};
  if (request.constraints.recompute_layers) return {Recompute::full};
  // Flash attention keeps no scores: recomputing its core would free only the log-sum-exp, 4 bytes
  // per head and token, for the price of another attention forward.
  if (request.job.flash_attention) return {Recompute::none, Recompute::full};
  return {Recompute::none, Recompute::selective, Recompute::full};
}

}  // namespace echelon
