// plan run and plan calibrate on emulated GPUs (tests/runtime/cuda/standins), from the command line
// to the report.
#include <algorithm>
#include <cmath>

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
  CHECK(lacks(measured.out, "\nattention by ") == "");
  const ProcessResult predicted = runs.plan(
      "predict --model model.json --cluster rates.cluster.json --calibration rates.json --gpus 2 "
      "--dp 2 --seq 16 --global-batch 4 --framework echelon --json");
  INFO(predicted.err);
  REQUIRE(predicted.exit_code == 0);
  CHECK(lacks(predicted.out, "\"calibrated\"") == "");
}

namespace {

/// The report of some steps of plan.json, with `variables`; the text that the user reads in `said`.
RunReport report_of_steps(int steps, const GpuRuns& runs, const std::string& variables,
                          std::string& said) {
  const ProcessResult ran = runs.sandbox.shell(
      "timeout 120 " + runs.sandbox.program(runs.environment() + " COLUMNS=300 " + variables) +
      " run plan.json --backend cuda --report report.json --steps " + std::to_string(steps));
  INFO(ran.err);
  REQUIRE(ran.exit_code == 0);
  said = ran.out;
  return read_run_report(runs.sandbox.file("report.json")).value();
}

constexpr const char* kBuiltWithout = "Echelon's kernels (built without cuDNN's frontend)";

}  // namespace

TEST_CASE("a report says where cuDNN was looked for, and why it was not used") {
  const GpuRuns runs(1);
  runs.gpu_plan("plan.json", 1, "");
  std::string said;
  const auto attention = [&](const std::string& variables) {
    const std::string by = report_of_steps(1, runs, variables, said).environment.at("attention");
    CHECK(lacks(said, "Attention by " + by + ".") == "");
    return by;
  };
  const std::string theirs = "cuDNN 9.19.0, backward with atomic sums";
  const std::string usual = attention("");
  if (usual == kBuiltWithout) return;
  CHECK(usual == theirs);
  CHECK(attention("ECHELON_CUDNN=" ECHELON_PRETENDED_GPUS "/../standins") == theirs);
  CHECK(attention("ECHELON_CUDNN=/nowhere") ==
        "Echelon's kernels (cuDNN is not loaded: /nowhere/libcudnn.so.9: cannot open shared object "
        "file: No such file or directory)");
  // A library of an earlier minor version.
  CHECK(lacks(attention("PRETENDED_CUDNN=90100"),
              "Echelon's kernels (cuDNN 9.1.0 is older than 9.") == "");
}

TEST_CASE("without cuDNN a plan trains on GPUs to the losses of one core") {
  const GpuRuns runs(2);
  runs.gpu_plan("plan.json", 2, "--tp 2");
  std::string said;
  const RunReport without = report_of_steps(4, runs, "ECHELON_CUDNN=/nowhere", said);
  CHECK(without.environment.at("attention").starts_with("Echelon's kernels ("));
  const ProcessResult serial = runs.plan(
      "--model model.json --cluster this-machine --gpus 1 --seq 16 --global-batch 4 --microbatch 1 "
      "-o serial.json --quiet");
  REQUIRE(serial.exit_code == 0);
  const ProcessResult ran = runs.plan("run serial.json --steps 4 --report serial-report.json -q");
  INFO(ran.err);
  REQUIRE(ran.exit_code == 0);
  const std::vector<double> expected =
      losses_of(read_run_report(runs.sandbox.file("serial-report.json")).value());
  REQUIRE(expected.size() == 4);
  CHECK(std::abs(expected.back() - expected.front()) > 0.01);  // it learns
  REQUIRE(without.steps.size() == 4);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(without.steps[i].loss == Approx(expected[i]).epsilon(1e-3));
}

TEST_CASE("a library that the CUDA backend lacks is named, with the way to get it") {
  const GpuRuns runs(1);
  runs.gpu_plan("plan.json", 1, "");
  // The plugin, linked with a library that exists nowhere.
  std::string plugin = slurp(ECHELON_PRETENDED_GPUS "/echelon_cuda.so");
  const std::string linked = "libechelon_cuda_standins.so";
  std::string other = "libnccl.so.77";
  other.resize(linked.size(), '\0');
  const std::size_t at = plugin.find(linked);
  REQUIRE(at != std::string::npos);
  plugin.replace(at, linked.size(), other);
  runs.sandbox.write("broken/echelon_cuda.so", plugin);
  const std::string broken = "ECHELON_BACKEND_PATH=" + shell_word(runs.sandbox.file("broken"));
  const std::string lacked =
      runs.sandbox.file("broken/echelon_cuda.so") + " needs libnccl.so.77, which is not found";
  const std::string remedy =
      "install NCCL 2, or add the folder of a Python wheel that has it, "
      "site-packages/nvidia/nccl/lib, to LD_LIBRARY_PATH";
  const ProcessResult refused = runs.sandbox.plan("run plan.json --backend cuda", broken);
  CHECK(refused.exit_code == 3);
  CHECK(lacks(refused.err, "--backend cuda: " + lacked + "; " + remedy) == "");
  // Nothing is said of a backend whose libraries are all there.
  for (const bool whole : {false, true}) {
    const std::string where = whole ? runs.environment() : broken;
    const auto doctor = document(runs.sandbox.plan("doctor --json", where));
    const auto& found = doctor["findings"];
    const auto backend = std::find_if(found.begin(), found.end(), [](const auto& finding) {
      return finding["name"] == "CUDA backend";
    });
    REQUIRE(backend != found.end());
    CHECK((*backend)["state"] == (whole ? "fine" : "missing"));
    CHECK((*backend)["detail"] == (whole ? ECHELON_PRETENDED_GPUS "/echelon_cuda.so" : lacked));
    if (!whole) CHECK((*backend)["remedy"] == remedy);
  }
}
