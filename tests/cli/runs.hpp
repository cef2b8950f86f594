// Plans and their runs in a sandbox.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/run/run_report.hpp"
#include "tests/cli/background.hpp"
#include "tests/cli/program.hpp"

namespace echelon::test {

/// A sandbox with plans and the folders of runs; its path in their arguments identifies processes.
class Runs {
 public:
  /// Writes `name`, a plan for gpt2-tiny with these degrees.
  void plan(const std::string& name, int ranks, const std::string& degrees,
            const std::string& cluster = "this-machine") const {
    const ProcessResult made = sandbox.plan(
        "--model gpt2-tiny --cluster " + cluster + " --gpus " + std::to_string(ranks) +
        " --seq 32 --global-batch 8 --microbatch 1 " + degrees + " -o " + name + " --quiet");
    INFO(made.err);
    REQUIRE(made.exit_code == 0);
  }
  [[nodiscard]] ProcessResult run(const std::string& arguments) const {
    return sandbox.shell("timeout 60 " + program() + " run --quiet " + arguments);
  }
  [[nodiscard]] std::string program() const {
    return sandbox.program("TMPDIR=" + shell_word(sandbox.file("")));
  }
  /// In the background, with events in the file "events".
  [[nodiscard]] std::string exec(const std::string& arguments) const {
    return "cd " + shell_word(sandbox.file("")) + " && exec " + program() + " run " + arguments +
           " --quiet --events 5 5>events >out 2>err";
  }
  [[nodiscard]] bool has_stepped(int steps) const {
    const std::string all = text("events");
    const std::string mark = "\"event\":\"step\"";
    std::size_t count = 0;
    for (std::size_t at = 0; (at = all.find(mark, at)) != std::string::npos; ++at) ++count;
    return static_cast<int>(count) > steps;
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream in(sandbox.file(name));
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  [[nodiscard]] bool nobody_is_left() const {
    return within(20, [&] { return processes_with(sandbox.file("plan-run-")).empty(); });
  }

  Sandbox sandbox;
};

inline std::vector<double> losses_of(const RunReport& report) {
  std::vector<double> losses;
  for (const RunStep& step : report.steps) losses.push_back(step.loss);
  return losses;
}

}  // namespace echelon::test
