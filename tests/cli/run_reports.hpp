// Run reports for tests of the command line, without a run.
#pragma once

#include <functional>

#include "core/base/content_hash.hpp"
#include "core/run/run_report.hpp"
#include "tests/cli/program.hpp"

namespace echelon::test {

/// A plan for this machine, and a report of a run of it that took `slower` times its prediction.
inline void write_report(const Sandbox& sandbox, const std::string& name,
                         const std::string& degrees, double slower,
                         const std::function<void(RunReport&)>& change = {}) {
  const ProcessResult planned = sandbox.plan(
      "predict --model gpt2-tiny --cluster this-machine --gpus 2 --seq 64 --global-batch 8 " +
      degrees + " -q -o plan.json");
  INFO(planned.err);
  REQUIRE(planned.exit_code == 0);
  RunReport report;
  report.plan = read_plan_file(sandbox.file("plan.json")).value();
  report.schedule_hash = report.executed_hash = content_hash(report.plan.program);
  report.ranks = 2;
  report.measured = report.plan.predicted;
  CostBreakdown& time = report.measured->time;
  time.compute = slower * time.compute;
  report.spans = {{0, 0, Seconds{}, 1_ms}};
  if (change) change(report);
  sandbox.write(name, run_report_to_json(report));
}

}  // namespace echelon::test
