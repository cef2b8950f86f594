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
                                      "doubts", "runs", "rates", "next_run"});
  CHECK(fit["calibrations"][0]["doubts"].empty());
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

TEST_CASE(
    "fit says which reports were measured beside other programs, and which it cannot explain") {
  const Sandbox sandbox;
  const auto beside = [](const char* others) {
    return [others](RunReport& r) { r.environment[kOtherPrograms] = others; };
  };
  write_report(sandbox, "idle.json", "--dp 2", 2, beside("0.05 of 2"));
  write_report(sandbox, "busy.json", "--tp 2", 2, beside("1.64 of 2"));
  const std::string text = sandbox.plan("fit idle.json busy.json").out;
  CHECK(lacks(text, "Other programs used cores while steps were measured (busy.json 1.64 of 2)") ==
        "");
  CHECK(sandbox.plan("fit idle.json").out.find("Other programs") == std::string::npos);

  write_report(sandbox, "stalled.json", "--dp 2", 40, beside("0.05 of 2"));
  const auto doubts = document(
      sandbox.plan("fit idle.json busy.json stalled.json --json"))["calibrations"][0]["doubts"];
  REQUIRE(doubts.size() == 2);
  CHECK(lacks(doubts[1].get<std::string>(), "stalled.json is ") == "");
  CHECK(lacks(doubts[1].get<std::string>(), "times as slow as predicted even after the fit") == "");
}

TEST_CASE("fit counts a run once, however often its report is given") {
  const Sandbox sandbox;
  write_report(sandbox, "a.json", "--dp 2", 2);
  sandbox.write("copy.json", slurp(sandbox.file("a.json")));
  const auto rates = [](const nlohmann::ordered_json& fit) {
    return fit["calibrations"][0]["rates"];
  };
  const auto once = document(sandbox.plan("fit a.json --json"));
  const auto thrice = document(sandbox.plan("fit a.json a.json copy.json --json"));
  CHECK(rates(once) == rates(thrice));
  CHECK(thrice["left_out"] == nlohmann::ordered_json::array({"a.json: the same run as a.json",
                                                             "copy.json: the same run as a.json"}));
  REQUIRE(sandbox.plan("fit a.json -o once.json").exit_code == 0);
  const auto again = document(sandbox.plan("fit a.json --calibration once.json --json"));
  REQUIRE(again["calibrations"][0]["doubts"].size() == 1);
  CHECK(lacks(again["calibrations"][0]["doubts"][0].get<std::string>(),
              "fitted to a report called a.json before: if it is this one, it counts twice") == "");
}

TEST_CASE("fit refuses a report whose step is not the sum of its parts") {
  const Sandbox sandbox;
  write_report(sandbox, "a.json", "--dp 2", 2);
  for (const char* edited : {"0.001", "-1", "\"fast\"", "null"}) {
    CAPTURE(edited);
    auto report = nlohmann::ordered_json::parse(slurp(sandbox.file("a.json")));
    report["measured"]["time"]["step_seconds"] = nlohmann::ordered_json::parse(edited);
    sandbox.write("edited.json", report.dump());
    const std::string message = complaint(sandbox.plan("fit edited.json"), 2);
    CHECK(lacks(message, std::string("edited.json at /measured/time/step_seconds: ") + edited) ==
          "");
    CHECK(lacks(message, "the sum of its parts; the file was damaged or edited") == "");
  }
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
