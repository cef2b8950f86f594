// The closed loop: plans are executed in virtual time at known rates and reported like runs, and
// the fit recovers the rates from the reports.
#include "evaluation/refit.hpp"

#include <cmath>

#include "core/base/content_hash.hpp"
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/schedule/lower_plan.hpp"
#include "planner/search/search.hpp"
#include "planner/space/plan_from_constraints.hpp"
#include "report/plan_files.hpp"
#include "runtime/training/measured_step.hpp"
#include "tests/runtime/executor/executor_run.hpp"
#include "tests/support/catch.hpp"
#include "topologies/import/this_machine.hpp"

namespace echelon {
namespace {

HostFacts host_with(int cores) {
  return {.cores = cores,
          .clock_ghz = 2.5,
          .clock_source = "test",
          .flops_per_cycle = 32,
          .simd_source = "test",
          .memory = 64_GB};
}

const Framework& executing() {
  static const Framework kFramework = find_framework("echelon").value();
  return kFramework;
}

/// One plan of the grid.
struct Degrees {
  int tp = 1, pp = 1, dp = 1, zero = 0;
  Recompute recompute = Recompute::none;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  const char* model = "gpt2-tiny";
  int sequence = 256;
  bool flash = true;
  int cores = 16;  ///< of the machine
  int cp = 1;
};

PlanRequest request_of(const Degrees& d, const Calibration& rates) {
  PlanRequest r{
      .model = load_model(d.model).value(),
      .job = {},
      .cluster = this_machine(host_with(d.cores), std::int64_t{d.tp} * d.cp * d.pp * d.dp).value(),
      .framework = executing(),
      .calibration = rates,
      .constraints = {}};
  r.job.sequence = d.sequence;
  r.job.global_batch = 32;
  r.job.flash_attention = d.flash;
  r.job.precision = find_precision("fp32").value();
  r.keep_free = Bytes{};
  r.constraints.pin<&ParallelPlan::tp>(d.tp);
  r.constraints.pin<&ParallelPlan::cp>(d.cp);
  r.constraints.pin<&ParallelPlan::pp>(d.pp);
  r.constraints.pin<&ParallelPlan::dp>(d.dp);
  r.constraints.pin<&ParallelPlan::zero>(d.zero);
  r.constraints.pin<&ParallelPlan::recompute>(d.recompute);
  r.constraints.pin<&ParallelPlan::schedule>(d.schedule);
  r.constraints.pin<&ParallelPlan::microbatch>(2);
  return r;
}

/// The shares of a pipeline rank's chunk times, by the cost model.
struct Mix {
  double own = 1;  ///< less the traffic that is an instruction of its own
  double tp = 0, cp = 0, host = 0;
  double recompute = 0;  ///< of the backward
};

/// Executes the plan in virtual time at `truth`; the report is for the plan as `rates` price it.
RunReport executed(const Degrees& d, const Calibration& rates, const Calibration& truth) {
  const PlanRequest request = request_of(d, rates);
  const Candidate candidate = predict(request).value();
  RunReport report;
  report.plan = complete_plan_file(request, candidate, {"test", kThisMachine, ""}).value();
  const Schedule schedule = parse_schedule_text(report.plan.program, "the plan").value();

  const ParallelPlan& plan = candidate.plan;
  const std::vector<Stage>& stages = candidate.prediction.memory.contents;
  const CostModel cost_model(request.model, request.job, request.cluster, request.framework, truth);
  const ShardingCosts sharding = cost_model.sharding_costs(sharding_of(plan));
  const StageModel model(cost_model, plan, sharding);
  const ScheduleCosts costs = timed_schedule_of(cost_model, plan, stages).costs;
  std::vector<Mix> mixes;
  for (const Stage& stage : stages) {
    const StageTimes t = model.times(stage);
    const Seconds own = t.total() - t.exposed[Axis::dp];
    mixes.push_back({.own = own / t.total(),
                     .tp = t.exposed[Axis::tp] / own,
                     .cp = t.exposed[Axis::cp] / own,
                     .host = t.host / own,
                     .recompute = t.recompute / (own * (t.backward / t.total()))});
  }

  const ProcessGrid grid(plan);
  const auto in_chunk = [](Op op) {
    return op == Op::forward || op == Op::backward || op == Op::backward_input ||
           op == Op::backward_weight;
  };
  const auto takes = [&](int rank, const Instruction& i) {
    const int stage = grid.coordinates(rank).pp;
    const Seconds time = duration_of(costs, schedule, stage, i);
    if (i.op == Op::optimizer_step) return time + truth.step_fixed;
    return in_chunk(i.op) ? mixes[static_cast<std::size_t>(stage)].own * time : time;
  };
  const auto within = [&](int rank, const Instruction& i) {
    WithinTimes out{};
    const auto put = [&](Within what, Seconds time) { out[static_cast<std::size_t>(what)] = time; };
    if (i.op == Op::optimizer_step) put(Within::host, truth.step_fixed);
    if (in_chunk(i.op)) {
      const Mix& mix = mixes[static_cast<std::size_t>(grid.coordinates(rank).pp)];
      put(Within::tp_comm, mix.tp * takes(rank, i));
      put(Within::cp_comm, mix.cp * takes(rank, i));
      put(Within::host, mix.host * takes(rank, i));
      if (i.op != Op::forward) put(Within::recompute, mix.recompute * takes(rank, i));
    }
    return out;
  };
  const std::vector<StepTimes> times = measured_steps(schedule, grid, takes, within);
  report.backend = "virtual";
  report.ranks = grid.ranks();
  report.schedule_hash = report.executed_hash = content_hash(report.plan.program);
  Prediction memory = report.plan.predicted;
  write_measured(schedule, times, memory, report);
  return report;
}

const std::vector<Degrees>& grid_of_plans() {
  using enum ScheduleKind;
  static const std::vector<Degrees> kGrid = {
      {},
      {.dp = 2},
      {.dp = 4, .zero = 1},
      {.dp = 4, .zero = 2},
      {.dp = 2, .zero = 3},
      {.tp = 2},
      {.tp = 4},
      {.pp = 2},
      {.pp = 4, .schedule = gpipe},
      {.pp = 2, .schedule = zero_bubble_h1},
      {.tp = 2, .pp = 2},
      {.tp = 2, .dp = 2, .zero = 1},
      {.pp = 2, .dp = 2, .recompute = Recompute::full},
      {.recompute = Recompute::full},
      {.tp = 2, .pp = 2, .dp = 2, .zero = 1},
      {.dp = 2, .sequence = 64},
      {.sequence = 256, .flash = false},
      {.model = "gpt2", .sequence = 1024},
      {.model = "gpt2", .sequence = 1024, .flash = false},
      {.dp = 2, .zero = 1, .model = "gpt2", .sequence = 128},
      {.tp = 2, .dp = 2, .zero = 3, .model = "gpt2", .sequence = 256},
      {.tp = 2, .pp = 2, .recompute = Recompute::full, .model = "gpt2", .sequence = 1024},
      {.dp = 2, .zero = 1, .recompute = Recompute::selective, .cp = 2},
      {.model = "gpt2", .sequence = 256, .cp = 2},
  };
  return kGrid;
}

Calibration unplanted() {
  return pick_calibration(this_machine(host_with(16), 1)->gpu(), executing()).value();
}

std::vector<RunObservation> observed(const std::vector<Degrees>& plans, const Calibration& rates,
                                     const Calibration& truth) {
  std::vector<RunObservation> runs;
  for (const Degrees& d : plans) {
    const std::string name = "run-" + std::to_string(runs.size()) + ".json";
    // Through the file, like a real report.
    RunReport report =
        parse_run_report(run_report_to_json(executed(d, rates, truth)), name).value();
    const PlanRequest request = request_of(d, rates);
    runs.push_back(
        observed_run(name, std::move(report), request.cluster, request.framework).value());
  }
  return runs;
}

Seconds step_at(const Degrees& d, const Calibration& rates) {
  const PlanRequest r = request_of(d, rates);
  const ParallelPlan plan = plan_from_constraints(r).value();
  return CostModel(r.model, r.job, r.cluster, r.framework, rates).price(plan).time.step;
}

}  // namespace

TEST_CASE("the fit recovers a machine's known rates from the reports of its runs") {
  const Calibration prior = unplanted();
  Calibration truth = prior;
  truth.gemm_efficiency *= 0.7;
  truth.memory_efficiency *= 1.3;
  truth.attention_forward *= 1.4;
  truth.attention_backward *= 1.4;
  truth.optimizer_efficiency *= 0.6;
  truth.link_efficiency *= 0.8;
  truth.collective_base = 1.8 * truth.collective_base;
  truth.intra_hop = 1.8 * truth.intra_hop;
  truth.step_fixed = 3.0 * truth.step_fixed;
  const auto runs = observed(grid_of_plans(), prior, truth);
  const Refit learned = refit(runs, prior);

  // The achieved rate of kernels: their rate times their common speed factor, which no run can
  // separate.
  const auto rate = [](const Calibration& c, std::string_view key) {
    const bool kernel =
        key.starts_with("gemm_") || key.starts_with("attention_") || key.starts_with("memory_");
    return rate_of(c, calibration_field(key)) * (kernel ? c.kernel_speed_factor : 1);
  };
  const auto found = [&](const char* key, double within) {
    CAPTURE(key, rate(prior, key));
    CHECK(rate(learned.calibration, key) == Approx(rate(truth, key)).epsilon(within));
  };
  for (const char* key :
       {"gemm_efficiency", "attention_forward", "attention_backward", "optimizer_efficiency",
        "step_fixed", "link_efficiency", "collective_base", "intra_hop"}) {
    found(key, 0.04);
  }
  found("memory_efficiency", 0.1);  // a small share of every step, and similar to gemm_ramp
  for (const FittedRate& one : learned.rates) {
    CAPTURE(one.key);
    CHECK(one.low <= one.value);
    CHECK(one.value <= one.high);
    // No plan has experts, fp8 or a second node.
    if (one.key == "moe_speed_factor" || one.key == "fp8_efficiency" ||
        one.key == "nic_efficiency") {
      CHECK(one.learned < 0.01);
      CHECK(one.value == Approx(one.prior));
    }
  }
  // Steps within 1 %, or as near as the closed forms come to the executed schedule at all.
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RefitRun& run = learned.runs[i];
    const double at_truth = std::abs(step_at(grid_of_plans()[i], truth) / run.measured - 1);
    CAPTURE(run.name, at_truth, run.before / run.measured);
    CHECK(std::abs(run.after / run.measured - 1) < std::max(0.01, at_truth));
  }
  CHECK(learned.calibration.evidence == Evidence::calibrated);
  CHECK(learned.calibration.fitted_to.find("run-0.json") != std::string::npos);
  CHECK(learned.calibration.time_band < 0.1);  // held-out runs, predicted by fits to the others
  const auto written = parse_calibration(calibration_to_json(learned.calibration), "written");
  REQUIRE(written.ok());
  CHECK(written->gemm_efficiency == Approx(learned.calibration.gemm_efficiency));
}

TEST_CASE("three runs of one model correct its step time, whatever rate is wrong") {
  const Calibration prior = unplanted();
  Calibration truth = prior;
  truth.gemm_efficiency *= 0.6;
  truth.optimizer_efficiency *= 0.7;
  truth.collective_base = 3.0 * truth.collective_base;
  truth.intra_hop = 3.0 * truth.intra_hop;
  const Refit learned = refit(observed({{.dp = 2}, {.pp = 2}, {.tp = 2}}, prior, truth), prior);
  for (const RefitRun& run : learned.runs) {
    CAPTURE(run.name);
    CHECK(std::abs(run.before / run.measured - 1) > 0.1);
    CHECK(std::abs(run.after / run.measured - 1) < 0.03);
  }
  CHECK(learned.calibration.time_band < prior.time_band);  // narrowed, not judged
}

TEST_CASE("one stalled run does not distort the fit to the others") {
  const Calibration prior = unplanted();
  Calibration truth = prior;
  truth.gemm_efficiency *= 0.7;
  auto runs = observed({{}, {.dp = 2}, {.tp = 2}, {.dp = 4}, {.dp = 2}}, prior, truth);
  CostBreakdown& stalled = runs.back().report.measured->time;
  stalled.compute = 4 * stalled.compute;
  const Refit learned = refit(runs, prior);
  for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
    CAPTURE(i);
    CHECK(learned.runs[i].after / learned.runs[i].measured == Approx(1).epsilon(0.1));
  }
}

TEST_CASE("ranks that share cores contribute only their step time to the fit") {
  const Calibration prior = unplanted();
  Calibration truth = prior;
  truth.gemm_efficiency *= 0.5;
  const Degrees crowded{.dp = 4, .cores = 2};
  auto runs = observed({crowded}, prior, truth);
  RunReport& report = runs.front().report;
  // Spans are stretched by the concurrent work of other ranks.
  for (ExecutedSpan& span : report.spans) span.end += 5_s;
  report.measured->time = CostBreakdown{};
  report.measured->time.compute = step_at(crowded, truth);
  const RefitRun run = refit(runs, prior).runs.front();
  CHECK(run.before / run.measured < 0.7);
  CHECK(run.after / run.measured == Approx(1).epsilon(0.02));
}

TEST_CASE("a run that failed, measured nothing or ran another plan is excluded with its reason") {
  const RunReport good = executed({.dp = 2}, unplanted(), unplanted());
  const ClusterTopology cluster = this_machine(host_with(16), 2).value();
  const auto reason = [&](const std::function<void(RunReport&)>& change) {
    RunReport report = good;
    change(report);
    const auto run = observed_run("r.json", std::move(report), cluster, executing());
    return run.ok() ? std::string() : run.error().message();
  };
  CHECK(reason([](RunReport&) {}).empty());
  const auto names = [&](const std::function<void(RunReport&)>& change, const char* why) {
    return reason(change).find(why) != std::string::npos;
  };
  CHECK(names(
      [](RunReport& r) {
        r.end = RunReport::End::failed;
        r.reason = "rank 1 hangs";
      },
      "rank 1 hangs"));
  CHECK(names([](RunReport& r) { r.measured.reset(); }, "without a measured step"));
  CHECK(names([](RunReport& r) { r.executed_hash = "other"; }, "did not execute"));
  CHECK(names([](RunReport& r) { r.spans.front().instruction = 1000; }, "does not have"));
  CHECK(names([](RunReport& r) { r.spans.front().rank = 9; }, "does not have"));
}

}  // namespace echelon
