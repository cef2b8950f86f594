// plan run and plan calibrate on emulated GPUs (tests/runtime/cuda/standins), from the command line
// to the report.
#include "tests/cli/gpu_runs.hpp"

using namespace echelon;
using namespace echelon::test;

TEST_CASE("a plan runs on GPUs from the command line to its report") {
  const GpuRuns runs(4);
  runs.gpu_plan("plan.json", 4, "--dp 2 --pp 2 --zero 1");
  const ProcessResult ran =
      runs.plan("run plan.json --backend cuda --steps 4 --report report.json --trace trace.json");
  INFO(ran.err);
  REQUIRE(ran.exit_code == 0);
  const RunReport report = read_run_report(runs.sandbox.file("report.json")).value();
  CHECK(report.backend == "cuda");
  CHECK(report.steps.size() == 4);
  CHECK(report.executed_hash == report.schedule_hash);
  CHECK(report.environment.count("gpu") == 1);
  REQUIRE(report.measured);
  CHECK(report.measured->time.total() > Seconds{});
  CHECK(lacks(ran.out, "measured") == "");
  // All ranks on one GPU give the same losses.
  const GpuRuns shared(1);
  shared.gpu_plan("plan.json", 4, "--dp 2 --pp 2 --zero 1");
  const ProcessResult again =
      shared.plan("run plan.json --backend cuda --steps 4 --report report.json --quiet");
  INFO(again.err);
  REQUIRE(again.exit_code == 0);
  const RunReport other = read_run_report(shared.sandbox.file("report.json")).value();
  REQUIRE(other.steps.size() == 4);
  CHECK(other.steps.back().loss == Approx(report.steps.back().loss).epsilon(1e-3));
}

TEST_CASE(
    "a GPU with too little memory is reported before the first step, with the cheapest change") {
  const GpuRuns runs(1, 34);
  runs.gpu_plan("plan.json", 1, "");
  const ProcessResult ran = runs.plan("run plan.json --backend cuda --steps 2");
  CHECK(ran.exit_code == 5);
  INFO(ran.out << ran.err);
  CHECK(lacks(ran.out + ran.err, "no memory for") == "");
  CHECK(lacks(ran.out + ran.err, "; predicted:") == "");
}

TEST_CASE("GPUs are calibrated, and plans are made for them") {
  const GpuRuns runs(2, 8192);
  const ProcessResult measured = runs.plan("calibrate --backend cuda -o rates.json");
  INFO(measured.out << measured.err);
  REQUIRE(measured.exit_code == 0);
  CHECK(lacks(measured.out, "Written to rates.json and rates.cluster.json") == "");
  const ProcessResult predicted = runs.plan(
      "predict --model model.json --cluster rates.cluster.json --calibration rates.json --gpus 2 "
      "--dp 2 --seq 16 --global-batch 4 --framework echelon --json");
  INFO(predicted.err);
  REQUIRE(predicted.exit_code == 0);
  CHECK(lacks(predicted.out, "\"calibrated\"") == "");
}
