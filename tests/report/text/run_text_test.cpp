// The report of a run: the band and the machine's other load, steps that diverge.
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "report/run.hpp"
#include "tests/core/plan/any_plan_file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

/// One rank, predicted to take one to two seconds a step.
RunReport report_of(Seconds measured) {
  Numbers draw(1);
  RunReport r;
  r.plan = any_plan_file(draw);
  r.plan.predicted.low = 1_s;
  r.plan.predicted.high = 2_s;
  r.plan.predicted.stages.resize(1);
  r.measured = r.plan.predicted;
  r.measured->time = {};
  r.measured->time.compute = measured;
  return r;
}

std::string text_of(const RunReport& report) {
  return run_text(report, SimulatedStep{}, TextStyle{.width = 300});
}

}  // namespace

TEST_CASE("a miss of the band is explained by the load of other programs") {
  RunReport slow = report_of(3_s);
  slow.environment[kOtherPrograms] = "1.40 of 2";
  CHECK(
      lacks(text_of(slow),
            "Measured outside the predicted band, 1.00 s to 2.00 s; other programs used 1.40 of 2 "
            "cores meanwhile.\n") == "");
  slow.environment[kProcessorTime] = "2.4 s";
  slow.environment[kThreadsPerRank] = "2";
  CHECK(
      lacks(text_of(slow),
            "other programs used 1.40 of 2 cores meanwhile; the processor time of a step, 2.40 s, "
            "is 1.20 s on 2 cores.\n") == "");
  slow.launcher = "slurm";  // several machines
  CHECK(lacks(text_of(slow), "used 1.40 of 2 cores meanwhile.\n") == "");
  slow.launcher = "local";
  slow.environment[kOtherPrograms] = "0.02 of 2";
  CHECK(lacks(text_of(slow),
              "other programs used 0.02 of 2 cores meanwhile, so the machine's load is not the "
              "reason.\n") == "");
  slow.environment.clear();
  CHECK(lacks(text_of(slow), "Measured outside the predicted band, 1.00 s to 2.00 s.\n") == "");
  RunReport right = report_of(Seconds{1.5});
  right.environment[kOtherPrograms] = "0.00 of 2";
  CHECK(lacks(text_of(right),
              "Measured inside the predicted band, 1.00 s to 2.00 s; other programs used 0.00 of 2 "
              "cores "
              "meanwhile.\n") == "");
}

TEST_CASE("a run reports the idle time of every stage next to the predicted one") {
  RunReport report = report_of(Seconds{1.5});
  const auto stage = [](double compute, double fill, double imbalance, double communication) {
    return StageTime{.compute = Seconds{compute},
                     .recompute = {},
                     .communication_wait = Seconds{communication},
                     .fill_drain = Seconds{fill},
                     .imbalance = Seconds{imbalance},
                     .stragglers = {},
                     .optimizer = {},
                     .host = {},
                     .data = {}};
  };
  report.plan.predicted.stages.resize(2);
  report.measured->stages.resize(2);
  report.measured->stage_times = {stage(1, 0.25, 0.125, 0.125), stage(1.375, 0.125, 0, 0)};
  report.plan.predicted.stage_times = {stage(1, 0.25, 0.25, 0), stage(1.25, 0.25, 0, 0)};
  const std::string text = text_of(report);
  CHECK(lacks(text, "Idle time of every stage: measured and predicted\n") == "");
  const auto row = [&](std::vector<std::string> cells) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      bool same = true;
      std::string word;
      for (const std::string& cell : cells) same = same && words >> word && word == cell;
      if (same) return true;
    }
    return false;
  };
  CHECK(row({"0", "fill/drain", "250", "ms", "250", "ms", "16.7", "%", "0.0", "%"}));
  CHECK(row({"0", "imbalance", "125", "ms", "250", "ms", "8.3", "%", "+100.0", "%"}));
  CHECK(row({"0", "communication", "125", "ms", "0", "s", "8.3", "%"}));
  CHECK(row({"0", "idle", "500", "ms", "500", "ms", "33.3", "%", "0.0", "%"}));
  CHECK(row({"1", "idle", "125", "ms", "250", "ms", "8.3", "%", "+100.0", "%"}));
  report.measured->stage_times.resize(1);
  CHECK(text_of(report).find("Idle time") == std::string::npos);
}

TEST_CASE("figures of a diverging step are short, and are shown even if not finite") {
  RunReport report = report_of(1_s);
  RunStep step;
  step.seconds = 1_s;
  step.loss = 5.5;
  step.gradient_norm = 2.25;
  report.steps.push_back(step);
  step.step = 1;
  step.loss = 53120430;
  step.gradient_norm = 3.77e31;
  report.steps.push_back(step);
  step.step = 2;
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.gradient_norm = std::numeric_limits<double>::infinity();
  report.steps.push_back(step);
  const std::string text = text_of(report);
  CHECK(lacks(text, "5.5000") == "");
  CHECK(lacks(text, "2.250") == "");
  CHECK(lacks(text, "5.31e+07") == "");
  CHECK(lacks(text, "3.77e+31") == "");
  CHECK(lacks(text, "nan") == "");
  CHECK(lacks(text, "inf") == "");
  CHECK(lacks(step_line(report.steps[1], 9), "step 1 (2 of 9): loss 5.31e+07, ") == "");
  CHECK(lacks(run_summary(report), "loss 5.5000 to nan") == "");
}
