// plan fit of run reports: refused input, excluded rows, and the file it writes.
#include <cmath>

#include "tests/cli/run_reports.hpp"

namespace echelon::test {

TEST_CASE("fit learns from run reports, and predictions use its calibration") {
  const Sandbox sandbox;
  write_report(sandbox, "a.json", "--dp 2", 2);
  write_report(sandbox, "b.json", "--tp 2", 2);
  write_report(sandbox, "failed.json", "--dp 2", 2, [](RunReport& r) {
    r.end = RunReport::End::failed;
    r.reason = "rank 1 hangs";
  });
  const nlohmann::ordered_json fit =
      document(sandbox.plan("fit a.json b.json failed.json -o learned.json --json"));
  REQUIRE(fit["calibrations"].size() == 1);
  CHECK(fit["left_out"].size() == 1);
  check_keys(fit["calibrations"][0], {"name", "cores", "fitted_to", "prior_time_band", "time_band",
                                      "runs", "rates", "next_run"});
  for (const auto& run : fit["calibrations"][0]["runs"]) {
    CHECK(run["error_before"] < -0.3);
    CHECK(std::abs(run["error_after"].get<double>()) < 0.1);
  }
  const auto priced = [&](const std::string& more) {
    return document(sandbox.plan("predict plan.json --json " + more));
  };
  const auto after = priced("--calibration learned.json");
  CHECK(after["kind"] == "calibrated");
  CHECK(after["time"]["step_seconds"] > 1.4 * priced("")["time"]["step_seconds"].get<double>());

  const std::string text = sandbox.plan("fit a.json failed.json").out;
  CHECK(lacks(text, "left out: failed.json: a run that failed: rank 1 hangs") == "");
  CHECK(lacks(text, "predicted before") == "");
  CHECK(lacks(text, "Nothing was written: -o ") == "");
  const ProcessResult none = sandbox.plan("fit failed.json");
  CHECK(none.exit_code == 1);
  CHECK(lacks(none.out, "Nothing to learn from") == "");
}

TEST_CASE("a file that fit writes to plan calibrate's default path is used by default") {
  const Sandbox sandbox;
  write_report(sandbox, "a.json", "--dp 2", 3);
  sandbox.write(".config/echelon/here", "");
  REQUIRE(sandbox.plan("fit a.json -o .config/echelon/this-machine.json").exit_code == 0);
  const auto plan = document(sandbox.plan(
      "predict --model gpt2-tiny --cluster this-machine --gpus 2 --dp 2 --seq 64 --global-batch 8 "
      "--json"));
  CHECK(plan["kind"] == "calibrated");
}

TEST_CASE("fit refuses reports that do not belong together") {
  const Sandbox sandbox;
  write_report(sandbox, "a.json", "--dp 2", 2);
  write_report(sandbox, "elsewhere.json", "--dp 2", 2,
               [](RunReport& r) { r.plan.cluster_hash = std::string(32, '0'); });
  write_report(sandbox, "cuda.json", "--dp 2", 2, [](RunReport& r) { r.backend = "cuda"; });
  write_report(sandbox, "other-rates.json", "--dp 2", 2,
               [](RunReport& r) { r.plan.calibration_path = "rates.json"; });
  sandbox.write("runs.csv", "id,source\n");
  struct Case {
    const char* arguments;
    std::vector<const char*> parts;
  };
  for (const Case& each : std::vector<Case>{
           {"fit a.json runs.csv", {"tables of runs and run reports together"}},
           {"fit runs.csv runs.csv", {"2 tables"}},
           {"fit a.json --catalog", {"--catalog", "a table of measured runs"}},
           {"fit a.json --where gpus=1", {"--where", "a table of measured runs"}},
           {"fit none.json", {"none.json", "run report"}},
           {"fit plan.json", {"plan.json", "not a run report"}},
           {"fit a.json elsewhere.json", {"elsewhere.json", "another machine", "this-machine"}},
           {"fit a.json cuda.json", {"cuda.json", "backend cuda", "backend cpu"}},
           {"fit a.json other-rates.json", {"other-rates.json", "--calibration FILE"}},
           {"fit a.json --calibration none.json", {"--calibration", "none.json"}},
       }) {
    CAPTURE(each.arguments);
    const std::string message = complaint(sandbox.plan(each.arguments), 2);
    for (const char* part : each.parts) CHECK(lacks(message, part) == "");
  }
}

}  // namespace echelon::test
