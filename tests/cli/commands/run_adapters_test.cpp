// Adapters from the search to PEFT's files.
#include <cmath>
#include <filesystem>

#include "tests/cli/runs.hpp"

using namespace echelon;
using echelon::test::Runs;

TEST_CASE("the plans that a search finds for adapters run, and report memory as predicted") {
  const Runs runs;
  const ProcessResult found = runs.sandbox.plan(
      "--model gpt2-tiny --cluster this-machine --gpus 4 --framework echelon --lora 8 --seq 64 "
      "--global-batch 16 --top 6 --json -o plan.json");
  REQUIRE(found.exit_code == 0);
  const ProcessResult idle = runs.run("plan.json --steps 3 --lora-alpha 0");
  CHECK(idle.exit_code == 2);
  CHECK(idle.err.find("a number above 0") != std::string::npos);
  const ProcessResult ran =
      runs.run("plan.json --steps 3 --report report.json --lora-alpha 16 --export adapters");
  INFO(ran.err);
  CHECK(ran.exit_code == 0);
  const RunReport report = read_run_report(runs.sandbox.file("report.json")).value();
  REQUIRE(report.measured.has_value());
  const double error = report.measured->peak / report.plan.predicted.peak - 1;
  INFO("memory " << error);
  CHECK(std::abs(error) < 0.02);
  CHECK(std::filesystem::exists(runs.sandbox.file("adapters/adapter_model.safetensors")));
}
