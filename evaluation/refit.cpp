#include "evaluation/refit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "core/plan/process_grid.hpp"
#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {
namespace {

/// Scatter of ln(part): assumption, half of what FitOptions has for tables of many machines, since
/// these are medians over the steps of runs on one.
constexpr double kNoise = 0.02;

/// Plans are chosen by their steps: the whole counts twice as much as all its parts.
constexpr double kWeightOfStep = 2;

/// The activities of a rank's queues, by their spans.
enum class Busy { chunks, transfers, messages };
constexpr std::size_t kBusy = 3;
using BusyTimes = std::array<double, kBusy>;  // seconds

bool kind_of(Op op, Busy& out) {
  switch (op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight: out = Busy::chunks; return true;
    case Op::gather_parameters:
    case Op::reduce_gradients:
    case Op::reduce_tied_embedding:
    case Op::gather_updated: out = Busy::transfers; return true;
    case Op::send_activation:
    case Op::send_gradient: out = Busy::messages; return true;
    default: return false;
  }
}

double& at(BusyTimes& times, Busy kind) { return times[static_cast<std::size_t>(kind)]; }

/// How many instructions of a kind a pipeline rank has.
double count_of(const Program& program, Op op) {
  return static_cast<double>(std::ranges::count(program.instructions, op, &Instruction::op));
}

/// One run, ready to be priced repeatedly.
class Comparison {
 public:
  Comparison(const RunObservation& run, const Calibration& base)
      : run_(run),
        plan_(run.report.plan.plan),
        cost_model_(run.report.plan.model, run.report.plan.job, run.cluster, run.framework, base) {
    const NodeSpec& node = run.cluster.node();
    alone_ = node.cores == 0 || plan_.gpus() <= node.at_once();
    if (alone_) read_spans();
    measure();
    std::vector<double> predicted;
    predict(base, predicted);
    const double step = measured_.front();
    for (std::size_t i = 0; i < measured_.size(); ++i) {
      weights_.push_back(std::min(1.0, std::max(measured_[i], predicted[i]) / step / sharers_[i]));
    }
    weights_.front() = kWeightOfStep;
  }

  [[nodiscard]] const std::vector<double>& weights() const { return weights_; }
  [[nodiscard]] Seconds measured_step() const { return Seconds{measured_.front()}; }
  [[nodiscard]] Seconds step(const Calibration& rates) {
    price(rates);
    return scratch_.time.step;
  }
  void errors(const Calibration& rates, std::span<double> out) {
    constexpr double kFloor = 0.005;
    predict(rates, predicted_);
    const double floor = kFloor * measured_.front();
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = std::log((predicted_[i] + floor) / (measured_[i] + floor));
    }
    out.front() = std::log(predicted_.front() / measured_.front());
  }

 private:
  /// Sums over the spans of every pipeline rank, medians over the ranks that run its program; and
  /// the one that was over last.
  void read_spans() {
    const ProcessGrid grid(plan_);
    std::map<int, BusyTimes> of_ranks;
    std::optional<Seconds> last;
    for (const ExecutedSpan& span : run_.report.spans) {
      const int stage = grid.coordinates(span.rank).pp;
      const Program& program = run_.schedule.programs[static_cast<std::size_t>(stage)];
      if (!last || span.end > *last) {  // of equals the lowest rank, as measured_parts has it
        last = span.end;
        finisher_ = static_cast<std::size_t>(stage);
      }
      Busy kind{};
      if (!kind_of(program.instructions[span.instruction].op, kind)) continue;
      at(of_ranks[span.rank], kind) += (span.end - span.start).in(kSecond);
    }
    std::vector<std::array<std::vector<double>, kBusy>> of_stages(run_.schedule.programs.size());
    for (const auto& [rank, times] : of_ranks) {
      auto& stage = of_stages[static_cast<std::size_t>(grid.coordinates(rank).pp)];
      for (std::size_t kind = 0; kind < kBusy; ++kind) stage[kind].push_back(times[kind]);
    }
    for (auto& stage : of_stages) {
      busy_.push_back({});
      for (std::size_t kind = 0; kind < kBusy; ++kind) {
        auto& all = stage[kind];
        if (all.empty()) continue;
        std::ranges::sort(all);
        busy_.back()[kind] = all[all.size() / 2];
      }
    }
  }

  void observe(double seconds, double sharers = 1) {
    measured_.push_back(seconds);
    sharers_.push_back(sharers);
  }

  /// In the order of predict().
  void measure() {
    const CostBreakdown& parts = run_.report.measured->time;
    of_finisher_ = run_.report.measured->stage_times.empty();
    observe(parts.total().in(kSecond));
    if (!alone_) return;
    for (const Seconds part :
         {parts.compute, parts.recompute, parts.exposed[Axis::tp], parts.exposed[Axis::cp],
          parts.exposed[Axis::ep], parts.exposed[Axis::dp], parts.optimizer, parts.host}) {
      observe(part.in(kSecond));
    }
    const auto stages = static_cast<double>(busy_.size());
    for (std::size_t stage = 0; stage < busy_.size(); ++stage) {
      if (stage != finisher_) observe(at(busy_[stage], Busy::chunks), stages);
      observe(at(busy_[stage], Busy::transfers), stages);
      observe(at(busy_[stage], Busy::messages), stages);
    }
  }

  void price(const Calibration& rates) {
    cost_model_.recalibrate(rates);
    costs_ = cost_model_.sharding_costs(plan_);
    cost_model_.price(plan_, costs_, scratch_);
  }

  void predict(const Calibration& rates, std::vector<double>& out) {
    price(rates);
    out.assign(1, scratch_.time.step.in(kSecond));
    if (!alone_) return;
    const StageModel model(cost_model_, plan_, costs_);
    const auto m = static_cast<double>(model.microbatches());
    const std::vector<Stage>& stages = scratch_.memory.contents;
    const CostBreakdown parts = of_finisher_ ? finishers_parts(model, rates) : scratch_.time.parts;
    for (const Seconds part :
         {parts.compute, parts.recompute, parts.exposed[Axis::tp], parts.exposed[Axis::cp],
          parts.exposed[Axis::ep], parts.exposed[Axis::dp], parts.optimizer, parts.host}) {
      out.push_back(part.in(kSecond));
    }
    for (std::size_t stage = 0; stage < busy_.size(); ++stage) {
      const StageTimes times = model.times(stages[stage]);
      // Traffic of ZeRO-2 and 3 is an instruction of its own.
      if (stage != finisher_)
        out.push_back((m * (times.total() - times.exposed[Axis::dp])).in(kSecond));
      const Program& program = run_.schedule.programs[stage];
      out.push_back(transfers(model, stages[stage], program).in(kSecond));
      const double sends =
          count_of(program, Op::send_activation) + count_of(program, Op::send_gradient);
      out.push_back((sends * model.hop()).in(kSecond));
    }
  }

  /// Of the stage that was over last, next to what it waits for other stages: the content of
  /// reports that name no stages.
  [[nodiscard]] CostBreakdown finishers_parts(const StageModel& model,
                                              const Calibration& rates) const {
    const auto m = static_cast<double>(model.microbatches());
    const std::vector<Stage>& stages = scratch_.memory.contents;
    const auto data = [&](const Stage& stage, const StageTimes& times) {
      return m * times.exposed[Axis::dp] + model.reduction(stage, times);
    };
    const StageTimes own = model.times(stages[finisher_]);
    CostBreakdown parts = scratch_.time.parts;
    parts.exposed[Axis::dp] += data(stages[finisher_], own);
    for (const Stage& stage : stages) {
      parts.exposed[Axis::dp] -=
          data(stage, model.times(stage)) / static_cast<double>(stages.size());
    }
    parts.compute = m * own.compute;
    parts.recompute = m * own.recompute;
    for (const Axis axis : {Axis::tp, Axis::cp, Axis::ep}) {
      parts.exposed[axis] = m * own.exposed[axis];
    }
    parts.optimizer = model.optimizer(stages[finisher_]);
    parts.host = m * own.host + rates.step_fixed;
    return parts;
  }

  /// As costmodel/schedule/lower_plan.cpp divides them among instructions.
  [[nodiscard]] Seconds transfers(const StageModel& model, const Stage& stage,
                                  const Program& program) const {
    const StageTraffic traffic = model.traffic(stage);
    const double chunks = run_.schedule.chunks;
    const double pieces = chunks * run_.schedule.units;
    return count_of(program, Op::gather_parameters) / pieces * traffic.gather +
           count_of(program, Op::reduce_gradients) / pieces * traffic.reduce +
           count_of(program, Op::gather_updated) / chunks * traffic.gather +
           count_of(program, Op::reduce_tied_embedding) * model.tied_sync();
  }

  const RunObservation& run_;
  const ParallelPlan& plan_;
  CostModel cost_model_;
  ShardingCosts costs_;
  PlanCosts scratch_;
  bool alone_ = true;            ///< every rank has a core
  std::size_t finisher_ = 0;     ///< pipeline rank that was over last
  bool of_finisher_ = true;      ///< what was measured are its parts, not means over all stages
  std::vector<BusyTimes> busy_;  ///< of every pipeline rank
  std::vector<double> measured_, sharers_, weights_, predicted_;
};

/// Rates that runs on one machine determine: those of time_parameters() except for networks
/// measured by other programs. Rates that are zero are left out: they cannot be scaled.
std::vector<FitParameter> learnable_rates(const Calibration& base) {
  // An assumption is wrong by a factor, a measurement by a few percent: three times the spreads
  // that time_parameters() has for published benchmarks, and at least a factor of two.
  constexpr double kAssumed = 3;
  constexpr double kLeastAssumed = 0.7;
  constexpr double kFarthest = 20;  // times the prior: beyond it a part is not this rate's
  // Kernels of a step that run concurrently, and other load on the machine, slow all of them.
  std::vector<FitParameter> all = {{"kernel_speed_factor", "", 0.3, false, 0, 0}};
  all.insert(all.end(), time_parameters().begin(), time_parameters().end());
  std::vector<FitParameter> out;
  for (FitParameter& parameter : all) {
    if (parameter.key.ends_with("_latency_factor")) continue;
    if (parameter.key == "intra_hop") std::swap(parameter.key, parameter.along);
    const CalibrationField& field = calibration_field(parameter.key);
    const double prior = rate_of(base, field);
    if (!parameter.additive) {
      if (prior <= 0) continue;
      if (base.evidence == Evidence::extrapolated) {
        parameter.spread = std::max(kAssumed * parameter.spread, kLeastAssumed);
      }
      parameter.min = std::max(field.min, prior / kFarthest);
      parameter.max = std::min(field.max, prior * kFarthest);
    }
    out.push_back(std::move(parameter));
  }
  return out;
}

using Comparisons = std::vector<Comparison*>;

Fit fit_runs(const Comparisons& runs, const Calibration& base,
             std::span<const FitParameter> parameters) {
  Calibration bare = base;
  bare.sources.clear();  // copied thousands of times
  std::vector<double> weights;
  for (const Comparison* run : runs) {
    weights.insert(weights.end(), run->weights().begin(), run->weights().end());
  }
  const auto errors = [&](const Calibration& c, std::span<double> out) {
    std::size_t from = 0;
    for (Comparison* run : runs) {
      const std::size_t count = run->weights().size();
      run->errors(c, out.subspan(from, count));
      from += count;
    }
  };
  Fit fit = fit_rates(bare, parameters, weights, errors, {.noise = kNoise});
  fit.calibration.sources = base.sources;
  return fit;
}

/// The band that contains 80 % of the steps held out of a fit to the others.
double band_of_runs(const Comparisons& runs, const Calibration& base,
                    std::span<const FitParameter> parameters) {
  constexpr std::size_t kFits = 5;
  constexpr double kHeld = 0.8;
  std::vector<double> sizes;
  for (std::size_t part = 0; part < kFits; ++part) {
    Comparisons rest;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (i % kFits != part) rest.push_back(runs[i]);
    }
    const Fit fit = fit_runs(rest, base, parameters);
    for (std::size_t i = part; i < runs.size(); i += kFits) {
      sizes.push_back(
          std::abs(std::log(runs[i]->step(fit.calibration) / runs[i]->measured_step())));
    }
  }
  std::ranges::sort(sizes);
  const auto at_share = static_cast<std::size_t>(kHeld * static_cast<double>(sizes.size()));
  return std::clamp(std::exp(sizes[at_share]) - 1, 0.005, 1.0);
}

std::string names_of_runs(std::span<const RunObservation> runs) {
  constexpr std::size_t kNamed = 12;
  std::string out;
  for (std::size_t i = 0; i < std::min(runs.size(), kNamed); ++i) {
    out += (i == 0 ? "" : ", ") + runs[i].name;
  }
  return runs.size() > kNamed ? out + " …" : out;
}

}  // namespace

Result<RunObservation> observed_run(std::string name, RunReport report,
                                    const ClusterTopology& cluster, const Framework& framework) {
  const auto left_out = [&](std::string why) {
    return input_error(name, std::move(why), "a run that executed its plan and measured a step");
  };
  if (report.end == RunReport::End::failed) return left_out("a run that failed: " + report.reason);
  if (!report.measured || report.spans.empty() || report.measured->time.total() <= Seconds{}) {
    return left_out("a run without a measured step");
  }
  if (report.executed_hash != report.schedule_hash) {
    return left_out("a run that did not execute its plan");
  }
  Result<Schedule> schedule = parse_schedule_text(report.plan.program, name);
  if (!schedule) return schedule.error();
  const ProcessGrid grid(report.plan.plan);
  for (const ExecutedSpan& span : report.spans) {
    const bool inside = span.rank >= 0 && span.rank < grid.ranks();
    const auto stage = static_cast<std::size_t>(inside ? grid.coordinates(span.rank).pp : 0);
    if (!inside || stage >= schedule->programs.size() ||
        span.instruction >= schedule->programs[stage].instructions.size()) {
      return left_out("spans of instructions that its plan does not have");
    }
  }
  return RunObservation{std::move(name), std::move(report), *std::move(schedule), cluster,
                        framework};
}

Refit refit(std::span<const RunObservation> runs, const Calibration& base) {
  EXPECTS(!runs.empty(), "something to learn from");
  std::vector<Comparison> all;
  all.reserve(runs.size());
  for (const RunObservation& run : runs) all.emplace_back(run, base);
  Comparisons used;
  for (Comparison& one : all) used.push_back(&one);
  const std::vector<FitParameter> parameters = learnable_rates(base);
  const Fit fit = fit_runs(used, base, parameters);

  Refit out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    out.runs.push_back(
        {runs[i].name, all[i].measured_step(), all[i].step(base), all[i].step(fit.calibration)});
  }
  out.calibration = fit.calibration;
  out.rates = fit.rates;
  Calibration& calibration = out.calibration;
  constexpr double kSomething = 0.01;
  write_fit_sources(fit, parameters, static_cast<int>(runs.size()), kSomething, calibration);
  calibration.name = runs.front().cluster.name();
  calibration.evidence = Evidence::calibrated;
  calibration.fitted_to =
      fmt::format("{} runs on {}: {}", runs.size(), calibration.name, names_of_runs(runs));
  out.prior_band = base.time_band;
  out.known = {calibration, parameters, fit.covariance, kNoise, {}};
  for (const RunObservation& run : runs) {
    const PlanFile& plan = run.report.plan;
    out.plans.push_back(
        {CostModel(plan.model, plan.job, run.cluster, run.framework, calibration), plan.plan});
  }
  std::vector<double> errors;
  for (const RefitRun& run : out.runs) errors.push_back(std::log(run.after / run.measured));
  calibration.time_band = narrowed_band(base.time_band, out.known, out.plans, errors);
  set_source(calibration, calibration_field("time_band"),
             narrowed_band_text(base, static_cast<int>(runs.size())));
  constexpr std::size_t kFewestForABand = 8;
  if (runs.size() >= kFewestForABand) {
    calibration.time_band = band_of_runs(used, base, parameters);
    set_source(calibration, calibration_field("time_band"),
               "holds 80 % of the runs that were left out of a fit to the others");
  }
  return out;
}

}  // namespace echelon
