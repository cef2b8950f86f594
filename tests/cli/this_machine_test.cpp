// This computer as a cluster: planning, plan files, measured rates.
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

TEST_CASE(
    "a plan for this machine uses its framework and fp32, and is extrapolated until measured") {
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

TEST_CASE("rates measured here are found by the cores of a rank") {
  const Sandbox sandbox;
  sandbox.write(".config/echelon/this-machine.json", two_sizes());
  const auto found = document(sandbox.plan(kTiny + " --json"))["winner"];
  CHECK(found["calibration"] == "one-core");
  CHECK(found["kind"] == "calibrated");
  sandbox.write("named.json", two_sizes());
  const auto named = document(sandbox.plan(kTiny + " --calibration named.json --json"))["winner"];
  CHECK(named["calibration"] == "one-core");
  // They do not apply to another cluster.
  const auto other = document(sandbox.plan("--model 7b --gpus 8 --json"))["winner"];
  CHECK(other["calibration"] != "one-core");
}

TEST_CASE("the error for a calibration file without rates names the missing keys") {
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

TEST_CASE("this machine can be shown, and too many ranks are refused") {
  const Sandbox sandbox;
  const ProcessResult shown = sandbox.plan("topo show this-machine");
  CHECK(shown.exit_code == 0);
  CHECK(shown.out.find("this-machine") == 0);
  const std::string many =
      complaint(sandbox.plan("--model gpt2-tiny --cluster this-machine --gpus 65"), 2);
  CHECK(many.find("at most 64") != std::string::npos);
}
