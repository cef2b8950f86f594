#include "evaluation/next_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/expects.hpp"
#include "costmodel/calibration/memory_band.hpp"
#include "planner/space/legality.hpp"

namespace echelon {
namespace {

using Slopes = std::vector<double>;

Slopes slopes_of(const KnownRates& known, const PlanToPrice& of) {
  CostModel cost_model = of.cost_model;
  return slopes_at(known.calibration, known.parameters, [&](const Calibration& c) {
    cost_model.recalibrate(known.applied ? known.applied(c) : c);
    return std::log(cost_model.price(of.plan).time.step.in(kSecond));
  });
}

/// Layers as equal as can be, the first stages larger.
std::vector<int> equal_stages(int layers, int pp) {
  std::vector<int> out;
  for (int stage = 0; stage < pp; ++stage) out.push_back(layers / pp + (stage < layers % pp));
  return out;
}

/// State is split over all data-parallel ranks where their number changed.
void settle_zero(const ParallelPlan& run, ParallelPlan& plan) {
  if (plan.dp * plan.cp != run.dp * run.cp) plan.shard_group = plan.dp * plan.cp;
}

/// Makes the fields of `plan` that depend on the one changed from `run` agree with it.
void settle(const CostModel& cost_model, const ParallelPlan& run, ParallelPlan& plan) {
  const std::int64_t gpus = run.gpus();
  const std::int64_t rest = std::int64_t{plan.tp} * plan.cp * plan.pp;
  plan.dp = static_cast<int>(gpus % rest == 0 ? gpus / rest : 0);
  if (plan.tp == 1) plan.sequence_parallel = plan.overlap_tp = false;
  if (plan.pp == 1) {
    plan.schedule = ScheduleKind::one_f_one_b;
    plan.vpp = plan.microbatch_group = 1;
    plan.overlap_pp = false;
  }
  if (plan.pp != run.pp) plan.layers_per_stage = equal_stages(cost_model.model().layers, plan.pp);
  const auto stages = static_cast<std::size_t>(plan.pp);
  plan.recompute_layers =
      plan.recompute == Recompute::full ? plan.layers_per_stage : std::vector<int>(stages, 0);
  plan.selective_layers.clear();
  settle_zero(run, plan);
}

/// One choice changed in every way, not yet settled.
std::vector<ParallelPlan> changed(const ParallelPlan& run) {
  std::vector<ParallelPlan> out;
  for (int ParallelPlan::*degree : {static_cast<int ParallelPlan::*>(&ParallelPlan::tp),
                                    static_cast<int ParallelPlan::*>(&ParallelPlan::pp),
                                    static_cast<int ParallelPlan::*>(&ParallelPlan::cp),
                                    static_cast<int ParallelPlan::*>(&ParallelPlan::microbatch)}) {
    out.push_back(run);
    out.back().*degree *= 2;
    if (run.*degree % 2 != 0) continue;
    out.push_back(run);
    out.back().*degree /= 2;
  }
  for (int zero = 0; zero <= 3; ++zero) {
    if (zero == run.zero) continue;
    out.push_back(run);
    out.back().zero = zero;
  }
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (recompute == run.recompute) continue;
    out.push_back(run);
    out.back().recompute = recompute;
  }
  return out;
}

double spread(double variance) { return std::sqrt(std::max(0.0, variance)); }

}  // namespace

std::vector<ParallelPlan> neighbours_of(const PlanToPrice& run) {
  std::vector<ParallelPlan> out;
  const CostModel& priced = run.cost_model;
  for (ParallelPlan& plan : changed(run.plan)) {
    settle(priced, run.plan, plan);
    if (plan.dp < 1 ||
        check_plan(priced.model(), priced.job(), priced.cluster(), priced.framework(), plan)) {
      continue;
    }
    const MemoryPrediction memory = priced.price(plan).memory;
    const MemoryBand& band = memory_band_of(priced.calibration(), priced.framework());
    if (fit_probability(band, memory.peak_reserved, memory.capacity) < 0.5) continue;
    out.push_back(std::move(plan));
  }
  return out;
}

double narrowed_band(double before, const KnownRates& known, std::span<const PlanToPrice> runs,
                     std::span<const double> errors) {
  EXPECTS(!runs.empty() && !errors.empty(), "runs that were fitted to");
  std::vector<PlanToPrice> plans(runs.begin(), runs.end());
  for (const PlanToPrice& run : runs) {
    for (ParallelPlan& plan : neighbours_of(run)) {
      plans.push_back({run.cost_model, std::move(plan)});
    }
  }
  double prior = 0;
  double posterior = 0;
  for (const PlanToPrice& plan : plans) {
    const Slopes g = slopes_of(known, plan);
    for (const double each : g) prior += each * each;
    posterior += covariance_of(g, g, known.covariance);
  }
  const auto count = static_cast<double>(plans.size());
  const double noise = known.noise * known.noise;
  double scatter = 0;
  for (const double error : errors) scatter += error * error;
  scatter /= static_cast<double>(errors.size()) * noise;
  constexpr double kBandInSigmas = 1.2816;  // of 80 % of a normal distribution
  const double of_band = std::log(1 + before) / kBandInSigmas;
  const double wide = std::min(noise + prior / count, of_band * of_band);
  const double left = std::min(1.0, (noise + posterior / count) / wide);
  return std::clamp(before * std::sqrt(left) * std::max(1.0, std::sqrt(scatter)), 0.005, 1.0);
}

std::string narrowed_band_text(const Calibration& base, int runs) {
  return fmt::format("that of {}, {:.3f}, narrowed as {} runs narrow the uncertainty of the rates",
                     base.name, base.time_band, runs);
}

std::optional<NextRun> next_run(const KnownRates& known, std::span<const PlanToPrice> runs) {
  struct Place {
    std::size_t like = 0;
    ParallelPlan plan;
    Slopes slopes;
    bool was_run = false;
  };
  std::vector<Place> places;
  const auto known_place = [&](const CostModel& cost_model, const ParallelPlan& plan) {
    return std::ranges::any_of(places, [&](const Place& place) {
      const CostModel& other = runs[place.like].cost_model;
      return place.plan == plan && other.model() == cost_model.model() &&
             other.job().sequence == cost_model.job().sequence &&
             other.job().global_batch == cost_model.job().global_batch;
    });
  };
  const auto add = [&](std::size_t like, const ParallelPlan& plan, bool was_run) {
    const CostModel& cost_model = runs[like].cost_model;
    if (known_place(cost_model, plan)) return;
    places.push_back({like, plan, slopes_of(known, {cost_model, plan}), was_run});
  };
  for (std::size_t i = 0; i < runs.size(); ++i) add(i, runs[i].plan, true);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const ParallelPlan& plan : neighbours_of(runs[i])) add(i, plan, false);
  }
  double now = 0;
  for (const Place& place : places)
    now += covariance_of(place.slopes, place.slopes, known.covariance);
  const Place* best = nullptr;
  double best_gain = 0;
  for (const Place& tried : places) {
    if (tried.was_run) continue;
    double gain = 0;
    for (const Place& at : places) {
      const double shared = covariance_of(at.slopes, tried.slopes, known.covariance);
      gain += shared * shared;
    }
    gain /= known.noise * known.noise + covariance_of(tried.slopes, tried.slopes, known.covariance);
    if (best != nullptr && gain <= best_gain) continue;
    best = &tried;
    best_gain = gain;
  }
  if (best == nullptr) return {};
  CostModel cost_model = runs[best->like].cost_model;
  cost_model.recalibrate(known.applied ? known.applied(known.calibration) : known.calibration);
  const auto count = static_cast<double>(places.size());
  return NextRun{best->like, best->plan, cost_model.price(best->plan).time.step,
                 spread(now / count), spread((now - best_gain) / count)};
}

}  // namespace echelon
