// One command line that starts a run, survives the death of its processes and goes on, under every
// launcher.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/cli/started.hpp"
#include "tests/places.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::Background;
using echelon::test::free_port;
using echelon::test::kill_rank;
using echelon::test::lacks;
using echelon::test::losses_of;
using echelon::test::processes_with;
using echelon::test::Runs;
using echelon::test::Started;
using echelon::test::within;

namespace {

namespace fs = std::filesystem;

constexpr const char* kFlags =
    "plan.json --steps 30 --checkpoint-every 3 --resume auto --report report.json ";

void kill_every_process(const Runs& runs) {
  for (const pid_t each : processes_with(runs.sandbox.file("plan-run-"))) kill(each, SIGKILL);
}

RunReport report_in(const Runs& runs) {
  return read_run_report(runs.sandbox.file("report.json")).value();
}

/// The steps of the report end with those of the undisturbed run.
void check_rest(const RunReport& rest, const RunReport& whole) {
  const std::vector<double> all = losses_of(whole);
  const std::vector<double> last = losses_of(rest);
  REQUIRE(!last.empty());
  REQUIRE(last.size() <= all.size());
  CHECK(std::equal(last.begin(), last.end(), all.end() - std::ptrdiff_t(last.size())));
}

}  // namespace

TEST_CASE("one command line starts a run and goes on with it, whatever launcher starts it again") {
  const Runs runs;
  runs.plan("plan.json", 2, "--pp 2 --tp 1");
  REQUIRE(runs.run(std::string(kFlags) + "--checkpoint-dir whole").exit_code == 0);
  const RunReport whole = report_in(runs);
  REQUIRE(losses_of(whole).size() == 30);
  const std::string weights = slurp(runs.sandbox.file("whole/step_30/weights.safetensors"));
  const bool has_mpi = run_shell("command -v mpirun").exit_code == 0;
  for (const std::string launcher : {"local", "mpi"}) {
    if (launcher == "mpi" && !has_mpi) continue;
    CAPTURE(launcher);
    const std::string command =
        kFlags + ("--checkpoint-dir " + launcher) + " --launcher " + launcher;
    {
      Background run(runs.exec(command));
      REQUIRE(within(
          60, [&] { return fs::exists(runs.sandbox.file(launcher + "/step_3/manifest.json")); }));
      kill_every_process(runs);
      CHECK(run.exit_code_within(60) != 0);
    }
    CHECK(runs.nobody_is_left());
    const ProcessResult rest = runs.run(command);
    INFO(rest.out << rest.err);
    CHECK(rest.exit_code == 0);
    check_rest(report_in(runs), whole);
    CHECK(slurp(runs.sandbox.file(launcher + "/step_30/weights.safetensors")) == weights);
    const ProcessResult again = runs.run(command);  // a launcher that restarts what is complete
    CHECK(again.exit_code == 0);
    CHECK(lacks(again.out, "0 steps; all 30 steps were done before") == "");
  }
  const std::string command = std::string(kFlags) + "--quiet --checkpoint-dir env";
  {
    Started run(runs, 2, command);
    REQUIRE(within(60, [&] { return fs::exists(runs.sandbox.file("env/step_3/manifest.json")); }));
    kill_rank(runs, 1);
    CHECK(run.exit_code(0, 20) == 7);
    CHECK(run.exit_code(1, 20) == 3);
  }
  Started run(runs, 2, command);
  CHECK(run.exit_code(0) == 0);
  CHECK(run.exit_code(1) == 0);
  check_rest(report_in(runs), whole);
  CHECK(slurp(runs.sandbox.file("env/step_30/weights.safetensors")) == weights);
}

TEST_CASE("a world that shrank is told what to do, and goes on under another plan") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  runs.plan("one.json", 1, "--dp 1 --tp 1");
  const std::string flags = " --resume auto --checkpoint-dir steps --steps ";
  REQUIRE(runs.run("plan.json" + flags + "3").exit_code == 0);
  const ProcessResult fewer =
      runs.sandbox.shell(runs.sandbox.program("RANK=0 WORLD_SIZE=1") +
                         " run plan.json --launcher env --quiet" + flags + "5");
  CHECK(fewer.exit_code == 2);
  CHECK(lacks(fewer.err,
              "RANK: rank 0 of 1; expected 2, one process per rank of the plan; start 2 "
              "processes, or plan for 1 GPU and resume") == "");
  CHECK(fs::exists(runs.sandbox.file("steps/step_3/manifest.json")));
  const ProcessResult rest = runs.run("one.json" + flags + "5 --json");
  CHECK(rest.exit_code == 0);
  CHECK(lacks(rest.out, "\"step\":4") == "");
}
