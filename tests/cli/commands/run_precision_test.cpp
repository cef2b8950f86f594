// plan run in fp64, files of killed runs, and the measurements that plan calibrate requests.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "core/run/measurements.hpp"
#include "core/run/run_report.hpp"
#include "tests/cli/background.hpp"
#include "tests/cli/program.hpp"
#include "tests/places.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::document;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {

namespace fs = std::filesystem;

ProcessResult made(const Sandbox& sandbox, const std::string& name, const std::string& more) {
  return sandbox.plan(
      "--model gpt2-tiny --cluster this-machine --seq 32 --global-batch 8 "
      "--microbatch 1 -o " +
      name + " --quiet " + more);
}

RunReport report_of(const Sandbox& sandbox, const std::string& arguments) {
  const ProcessResult ran = sandbox.plan("run " + arguments + " --quiet --report report.json");
  INFO(ran.err << ran.out);
  REQUIRE(ran.exit_code == 0);
  return read_run_report(sandbox.file("report.json")).value();
}

}  // namespace

TEST_CASE("a run in fp64 trains like one in fp32 with twice the memory, resumes and is exported") {
  const Sandbox sandbox;
  const std::string degrees = "--gpus 2 --dp 2 --tp 1 --zero 1 ";
  REQUIRE(made(sandbox, "single.json", degrees + "--precision fp32").exit_code == 0);
  REQUIRE(made(sandbox, "double.json", degrees + "--precision fp64").exit_code == 0);
  const RunReport single = report_of(sandbox, "single.json --steps 4");
  const RunReport whole = report_of(sandbox, "double.json --steps 4 --checkpoint-dir whole");
  REQUIRE(whole.steps.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(whole.steps[i].loss == Approx(single.steps[i].loss).epsilon(1e-4));
    CHECK(whole.steps[i].loss != single.steps[i].loss);
  }
  REQUIRE(whole.measured.has_value());
  CHECK(whole.plan.job.precision.name == "fp64");
  CHECK(whole.measured->stages[0].weights / single.measured->stages[0].weights == Approx(2));
  CHECK(whole.measured->peak / whole.plan.predicted.peak == Approx(1).epsilon(0.02));

  (void)report_of(sandbox, "double.json --steps 2 --lr-decay-steps 4 --checkpoint-dir parts");
  const RunReport rest = report_of(
      sandbox, "double.json --steps 2 --lr-decay-steps 4 --checkpoint-dir parts --resume");
  REQUIRE(rest.steps.size() == 2);
  CHECK(rest.steps.back().loss == whole.steps.back().loss);
  CHECK(slurp(sandbox.file("parts/step_4/weights.safetensors")) ==
        slurp(sandbox.file("whole/step_4/weights.safetensors")));

  (void)report_of(sandbox, "double.json --steps 1 --export weights");
  CHECK(lacks(slurp(sandbox.file("weights/config.json")), "\"float64\"") == "");
  CHECK(lacks(slurp(sandbox.file("weights/model.safetensors")).substr(0, 4096), "\"F64\"") == "");
  (void)report_of(sandbox, "double.json --steps 1 --init-from weights");
}

TEST_CASE("fp64 is refused on a GPU without a described fp64 rate") {
  const Sandbox sandbox;
  const std::string told =
      complaint(sandbox.plan("--model 7b --gpus 8 --cluster dgx-h100 --precision fp64"), 2);
  CHECK(lacks(told, "whose description has no fp64 rate") == "");
  CHECK(lacks(told, "--cluster this-machine") == "");
}

TEST_CASE("a run removes the folder of a killed run, but not that of a live one") {
  const Sandbox sandbox;
  REQUIRE(made(sandbox, "plan.json", "--gpus 1").exit_code == 0);
  for (const char* name : {"plan-run-killed", "plan-run-living", "plan-run-young"}) {
    fs::create_directories(sandbox.file(name));
    sandbox.write(std::string(name) + "/plan.json", "{}");
  }
  REQUIRE(sandbox.shell("touch -d '1 hour ago' plan-run-killed plan-run-living").exit_code == 0);
  const ProcessResult ran = sandbox.shell("exec 9<plan-run-living; flock -n 9; " +
                                          sandbox.program("TMPDIR=" + sandbox.file("")) +
                                          " run plan.json --steps 1 --quiet");
  INFO(ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK_FALSE(fs::exists(sandbox.file("plan-run-killed")));
  CHECK(fs::exists(sandbox.file("plan-run-living/plan.json")));
  CHECK(fs::exists(sandbox.file("plan-run-young/plan.json")));
}

TEST_CASE("collectives between processes are timed under mpirun") {
  if (run_shell("command -v mpirun").exit_code != 0) return skip("mpirun is not installed");
  const TempDir folder;
  const std::string out = (folder.path() / "between.json").string();
  const std::string program = (fs::path(ECHELON_PLAN).parent_path() / "plan-run").string();
  const ProcessResult ran = run_shell(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 100 mpirun --quiet "
      "--oversubscribe --bind-to none -n 2 " +
      shell_word(program) + " --measure-between " + shell_word(out) + " 3");
  INFO(ran.err << ran.out);
  if (ran.err.find("built without MPI") != std::string::npos) return skip("built without MPI");
  REQUIRE(ran.exit_code == 0);
  const std::vector<Measurement> all = parse_measurements(slurp(out), out).value().all;
  CHECK(all.size() == 20);
  for (const Measurement& one : all) {
    INFO(one.what);
    CHECK(one.ranks == 2);
    CHECK(one.cores == 3);
    CHECK(one.seconds > Seconds{});
  }
}

TEST_CASE("plan calibrate measures for available launchers") {
  const Sandbox sandbox;
  const std::string told = complaint(sandbox.plan("calibrate --launcher slurm -o none.json"), 2);
  CHECK(lacks(told, "'slurm'") == "");
  CHECK(lacks(told, "local, mpi") == "");
}
