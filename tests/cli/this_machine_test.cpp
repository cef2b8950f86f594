// The computer we run on as a cluster: planned for, written to plan files, measured rates found.
#include "costmodel/calibration/calibration_io.hpp"
#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::document;
using echelon::test::Sandbox;

namespace {

const std::string kTiny = "--model gpt2-tiny --cluster this-machine --gpus 2";

/// A file of `plan calibrate` for ranks of one core and of many.
std::string two_sizes() {
  Calibration one = shipped_calibration("cpu").value();
  one.name = "one-core";
  one.evidence = Evidence::calibrated;
  Calibration many = one;
  many.name = "many-cores";
  return calibrations_to_json({{1, one}, {1000, many}});
}

}  // namespace

TEST_CASE("a plan for this machine is for its stack, in fp32, and extrapolated until measured") {
  const Sandbox sandbox;
  const auto winner = document(sandbox.plan(kTiny + " --json"))["winner"];
  CHECK(winner["cluster"] == "this-machine");
  CHECK(winner["framework"] == "echelon");
  CHECK(winner["precision"] == "fp32");
  CHECK(winner["kind"] == "extrapolated");
  CHECK(winner["plan"]["cp"] == 1);
  CHECK(winner["plan"]["ep"] == 1);
  CHECK(winner["plan"]["offload"].value("optimizer", 0.0) == 0.0);
}

TEST_CASE("a plan file for this machine is read back with the same prediction") {
  const Sandbox sandbox;
  const auto written = document(sandbox.plan(kTiny + " -o plan.json --json"))["winner"];
  const auto read = document(sandbox.plan("predict plan.json --json"));
  CHECK(read["time"]["step_seconds"] == written["time"]["step_seconds"]);
  CHECK(read["memory"]["peak_bytes"] == written["memory"]["peak_bytes"]);
}

TEST_CASE("rates that were measured here are found, those of the rank's cores") {
  const Sandbox sandbox;
  sandbox.write(".config/echelon/this-machine.json", two_sizes());
  const auto found = document(sandbox.plan(kTiny + " --json"))["winner"];
  CHECK(found["calibration"] == "one-core");
  CHECK(found["kind"] == "calibrated");
  sandbox.write("named.json", two_sizes());
  const auto named = document(sandbox.plan(kTiny + " --calibration named.json --json"))["winner"];
  CHECK(named["calibration"] == "one-core");
  // Of another cluster they say nothing.
  const auto other = document(sandbox.plan("--model 7b --gpus 8 --json"))["winner"];
  CHECK(other["calibration"] != "one-core");
}

TEST_CASE("a file of measured rates without rates says what is missing") {
  const Sandbox sandbox;
  sandbox.write("bad.json",
                R"({"schema": 1, "kind": "calibrations by cores", "calibrations": []})");
  const std::string none = complaint(sandbox.plan(kTiny + " --calibration bad.json"), 2);
  CHECK(none.find("/calibrations") != std::string::npos);
  sandbox.write(
      "bad.json",
      R"({"schema": 1, "kind": "calibrations by cores", "calibrations": [{"cores": 1}]})");
  const std::string half = complaint(sandbox.plan(kTiny + " --calibration bad.json"), 2);
  CHECK(half.find("an entry without") != std::string::npos);
}

TEST_CASE("this machine can be shown, and refuses more ranks than it takes") {
  const Sandbox sandbox;
  const ProcessResult shown = sandbox.plan("topo show this-machine");
  CHECK(shown.exit_code == 0);
  CHECK(shown.out.find("this-machine") == 0);
  const std::string many =
      complaint(sandbox.plan("--model gpt2-tiny --cluster this-machine --gpus 65"), 2);
  CHECK(many.find("at most 64") != std::string::npos);
}
