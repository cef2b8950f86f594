#include "planner/economics.hpp"

#include <cmath>
#include <utility>

#include "core/base/expects.hpp"
#include "core/base/text.hpp"

namespace echelon {
Seconds young_interval(Seconds write, Seconds mtbf) {
  return Seconds{std::sqrt(2 * write.in(kSecond)*mtbf.in(kSecond))};
}

Seconds daly_interval(Seconds write, Seconds mtbf) {
  EXPECTS(write >= Seconds{} && mtbf > Seconds{}, "a checkpoint takes time and failures are rare");
  if (write >= 2.0 * mtbf) return mtbf;
  const double x = write / (2.0 * mtbf);
  return young_interval(write, mtbf) * (1 + std::sqrt(x) / 3 + x / 9) - write;
}

double useful_fraction(Seconds interval, Seconds write, Seconds restart, Seconds mtbf) {
  return interval / mtbf / (std::exp(restart / mtbf) * std::expm1((interval + write) / mtbf));
}

namespace {

/// Of a figure that a run has shown for itself.
Evidence evidence_of(const PastRun& run, const PlanRequest& request) {
  return run.nodes == request.cluster.nodes() ? Evidence::measured : Evidence::calibrated;
}

/// Of one node, and where it is from.
std::optional<std::pair<Seconds, Evidence>> node_mtbf(const PlanRequest& request) {
  const TrainingEconomics& economics = request.economics;
  if (economics.mtbf_per_node) return std::pair(*economics.mtbf_per_node, Evidence::calibrated);
  if (const std::optional<PastRun>& run = economics.measured) {
    if (const std::optional<Seconds> between = run->goodput.time_between_failures())
      return std::pair(*between * run->nodes, evidence_of(*run, request));
  }
  if (const std::optional<Seconds> described = request.cluster.mtbf_per_node())
    return std::pair(*described, Evidence::calibrated);
  return std::nullopt;
}

void add_checkpoint(const PlanRequest& request, Goodput& out) {
  const TrainingEconomics& economics = request.economics;
  out.checkpoint = checkpoint_size(request);
  const std::optional<PastRun>& run = economics.measured;
  if (!economics.checkpoint_bandwidth && run && run->goodput.checkpoints > 0) {
    const double larger = out.checkpoint / run->goodput.checkpoint;
    constexpr double kSame = 0.02;  // files have headers, and vocabularies padding
    out.write = larger * run->goodput.write;
    out.stall = larger * run->goodput.stall;
    out.of_checkpoint =
        std::abs(larger - 1) <= kSame ? evidence_of(*run, request) : Evidence::calibrated;
    return;
  }
  out.write = out.stall =
      out.checkpoint / economics.checkpoint_bandwidth.value_or(request.cluster.storage_bandwidth());
  const bool of_site = economics.checkpoint_bandwidth || request.cluster.node().storage;
  out.of_checkpoint = of_site ? Evidence::calibrated : Evidence::extrapolated;
}

void add_restart(const PlanRequest& request, Goodput& out) {
  const TrainingEconomics& economics = request.economics;
  const std::optional<PastRun>& run = economics.measured;
  if (economics.restart) {
    out.restart = *economics.restart;
    out.of_restart = Evidence::calibrated;
  } else if (run && run->goodput.restarts > 0) {
    out.restart = run->goodput.restart;
    out.of_restart = evidence_of(*run, request);
  } else {
    out.restart = kRestart;
  }
}

}  // namespace

Bytes checkpoint_size(const PlanRequest& request) {
  const PrecisionRecipe& recipe = request.job.precision;
  const std::optional<Adapters>& adapters = request.job.adapters;  // then nothing else changes
  const std::int64_t saved =
      adapters ? adapter_parameters(request.model, *adapters, request.framework.adapts_each_module)
               : request.model.parameters();
  return Bytes{static_cast<double>(saved) * (recipe.weight + recipe.master + recipe.moments)};
}

std::optional<Goodput> goodput_of(const PlanRequest& request) {
  const auto node = node_mtbf(request);
  if (!node) return std::nullopt;
  Goodput out;
  out.mtbf = node->first / request.cluster.nodes();
  out.of_mtbf = node->second;
  add_checkpoint(request, out);
  add_restart(request, out);
  out.interval = std::max(daly_interval(out.stall, out.mtbf), out.write);
  out.fraction = useful_fraction(out.interval, out.stall, out.restart, out.mtbf);
  return out;
}

bool shows_goodput(const PlanRequest& request) {
  return request.job.token_budget || request.objective == Objective::goodput ||
         request.economics.measured;
}

std::int64_t steps_between_checkpoints(Seconds interval, Seconds step) {
  return std::max(std::int64_t{1}, static_cast<std::int64_t>(std::llround(interval / step)));
}

double token_factor(const PlanRequest& request) {
  if (!request.economics.critical_batch) return 1;
  return 1 + request.job.tokens_per_step() / *request.economics.critical_batch;
}

std::optional<Dollars> price_per_gpu_hour(const PlanRequest& request) {
  const std::optional<Dollars>& given = request.economics.gpu_hour;
  return given ? given : request.cluster.price_per_gpu_hour();
}

Seconds paid_per_step(const PlanRequest& request, Seconds step) {
  const std::optional<Goodput> failures = goodput_of(request);
  return step * request.cluster.gpus() / (failures ? failures->fraction : 1);
}

Economics economics_of(const PlanRequest& request, Seconds step) {
  const auto price = price_per_gpu_hour(request);
  const auto cost = [&](Seconds time) {
    return *price * (time.in(kSecond) / 3600.0 * request.cluster.gpus());
  };
  Economics out;
  out.step = step;
  out.gpu_time = paid_per_step(request, step);
  out.token_factor = token_factor(request);
  out.goodput = goodput_of(request);
  if (price) {
    out.per_step = cost(step);
    out.per_token = *out.per_step / request.job.tokens_per_step();
  }
  if (!request.job.token_budget) return out;
  const double steps = *request.job.token_budget * out.token_factor / request.job.tokens_per_step();
  out.time_for_budget = step * steps;
  if (price) out.for_budget = cost(*out.time_for_budget);
  if (!out.goodput) return out;
  out.expected_time = *out.time_for_budget / out.goodput->fraction;
  if (price) out.expected_dollars = cost(*out.expected_time);
  return out;
}

std::optional<Energy> energy_of(const PlanRequest& request, const CostBreakdown& parts) {
  const double watts = request.cluster.gpu().watts * request.cluster.gpus();
  if (watts <= 0) return std::nullopt;
  const Seconds kernels = parts.compute + parts.recompute + parts.optimizer;
  const Seconds collectives = parts.communication();
  const Seconds waiting = parts.total() - kernels - collectives;
  const Seconds at_full_power =
      kPowerOfKernels * kernels + kPowerOfCollectives * collectives + kPowerOfWaiting * waiting;
  Energy out;
  out.per_step = Joules{watts * at_full_power.in(kSecond)};
  out.most_per_step = Joules{watts * parts.total().in(kSecond)};
  if (!request.job.token_budget) return out;
  const double steps =
      *request.job.token_budget * token_factor(request) / request.job.tokens_per_step();
  const std::optional<Goodput> failures = goodput_of(request);
  out.for_budget = out.per_step * (steps / (failures ? failures->fraction : 1));
  return out;
}

Economics economics_of(const PlanRequest& request, const TimePrediction& time) {
  Economics out = economics_of(request, time.step);
  out.energy = energy_of(request, time.parts);
  return out;
}

}  // namespace echelon
