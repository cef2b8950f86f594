// Faults on demand in processes: who is named, by whom, with which exit code.
#include <optional>
#include <string>
#include <vector>

#include "tests/cli/started.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::Background;
using echelon::test::has_stepped;
using echelon::test::kill_rank;
using echelon::test::lacks;
using echelon::test::Runs;
using echelon::test::Started;
using echelon::test::under_user_mpirun;
using echelon::test::within;

namespace {

/// Ranks that end alike: their exit code, and what each of them says.
struct EndOfRanks {
  std::vector<int> ranks;
  int exit_code;
  std::vector<std::string> says;
};

/// Runs a plan in a process per rank to its end. `stopped`: this rank stops and is killed after the
/// others have ended.
void check_ends(int ranks, const std::string& flags, const std::vector<EndOfRanks>& ends,
                std::optional<int> stopped = {}) {
  const Runs runs;
  runs.plan("plan.json", ranks, "--dp " + std::to_string(ranks) + " --tp 1");
  Started run(runs, ranks, "plan.json --steps 1000000 --quiet " + flags);
  for (const EndOfRanks& end : ends) {
    for (const int rank : end.ranks) {
      CHECK(run.exit_code(rank) == end.exit_code);
      const std::string said = run.out(rank) + run.err(rank);
      INFO("rank " << rank << ": " << said);
      for (const std::string& each : end.says) CHECK(lacks(said, each) == "");
    }
  }
  if (stopped) {
    kill_rank(runs, *stopped);
    CHECK(run.exit_code(*stopped) == 3);
  }
  CHECK(runs.nobody_is_left());
}

}  // namespace

TEST_CASE("all processes name the one that was stopped") {
  check_ends(4, "--inject stop@2:40 --timeout 6s",
             {{{0, 1, 3}, 4, {"rank 2 has sent nothing for ", " s, last seen at step "}}}, 2);
}

TEST_CASE("rank 0 is named when it was stopped itself") {
  check_ends(2, "--inject stop@0:40 --timeout 6s", {{{1}, 4, {"rank 0 has sent nothing for "}}}, 0);
}

TEST_CASE("mpirun's processes name the one that was stopped") {
  if (run_shell("command -v mpirun").exit_code != 0) return skip("mpirun is not installed");
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const ProcessResult ended =
      runs.run("plan.json --steps 1000000 --launcher mpi --inject stop@1:40 --timeout 6s");
  if (ended.err.find("built without MPI") != std::string::npos) return skip("built without MPI");
  INFO(ended.out << ended.err);
  CHECK(ended.exit_code == 4);
  CHECK(lacks(ended.out, "rank 1 has sent nothing for ") == "");
  CHECK(runs.nobody_is_left());
}

TEST_CASE("a changed message names both ranks and suspects the machines") {
  check_ends(2, "--inject corrupt@1:2",
             {{{0, 1}, 3, {"bytes from rank 1 (127.0.0.1) to rank 0 has changed on its way"}}});
}

TEST_CASE("a process that is killed on demand is named by the others") {
  check_ends(2, "--inject kill@1:2", {{{0}, 7, {"rank 1 is gone"}}, {{1}, 3, {}}});
}

TEST_CASE("under the user's own mpirun an interrupted run leaves checkpoint and report") {
  if (run_shell("command -v mpirun").exit_code != 0) return skip("mpirun is not installed");
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string folder = "kept" + std::to_string(signal);
    // mpirun itself ends with 1; it kills its processes after their SIGTERM, here as late as under
    // --launcher mpi: its own second is too short on a loaded machine.
    Background run("export OMPI_MCA_odls_base_sigkill_timeout=3; " +
                   under_user_mpirun(runs, "--steps 1000000 --report " + folder +
                                               ".json --checkpoint-dir " + folder));
    REQUIRE(within(60, [&] { return lacks(runs.text("err"), "step 0 (1 of ").empty(); }));
    run.signal(signal);
    CHECK(run.exit_code_within(60) > 0);
    CHECK(runs.nobody_is_left());
    const RunReport report = read_run_report(runs.sandbox.file(folder + ".json")).value();
    INFO(report.reason);
    CHECK(report.launcher == "mpi");
    CHECK(report.end == RunReport::End::interrupted);
    CHECK(std::filesystem::exists(runs.sandbox.file(
        folder + "/step_" + std::to_string(report.steps.size()) + "/manifest.json")));
    std::filesystem::remove(runs.sandbox.file("err"));
  }
}

TEST_CASE("a rank whose plan is killed is named by the others, which keep a checkpoint") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  Started run(runs, 2,
              "plan.json --steps 1000000 --quiet --checkpoint-dir kept --report lost.json");
  REQUIRE(within(60, [&] { return has_stepped(runs); }));
  run.process(1).signal(SIGKILL);
  CHECK(run.exit_code(0) == 7);
  INFO(run.out(0) << run.err(0));
  CHECK(lacks(run.out(0) + run.err(0), "rank 1 is gone: its plan was killed") == "");
  const RunReport report = read_run_report(runs.sandbox.file("lost.json")).value();
  CHECK(report.end == RunReport::End::failed);
  CHECK(std::filesystem::exists(
      runs.sandbox.file("kept/step_" + std::to_string(report.steps.size()) + "/manifest.json")));
  CHECK(runs.nobody_is_left());
}

TEST_CASE("SIGHUP ends a run after its step, with a checkpoint") {
  const Runs runs;
  runs.plan("plan.json", 2, "--pp 2 --tp 1");
  Background run(runs.exec("plan.json --steps 1000000 --checkpoint-dir kept --report r.json"));
  REQUIRE(within(60, [&] { return runs.has_stepped(3); }));
  run.signal(SIGHUP);
  CHECK(run.exit_code_within(60) == 130);
  const RunReport report = read_run_report(runs.sandbox.file("r.json")).value();
  CHECK(std::filesystem::exists(
      runs.sandbox.file("kept/step_" + std::to_string(report.steps.size()) + "/manifest.json")));
}

TEST_CASE("flight records survive SIGKILL, and plan explain --failure reads them together") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  Started run(runs, 2,
              "plan.json --steps 1000000 --quiet --inject kill@1:5 --flight-recorder flight");
  CHECK(run.exit_code(0) == 7);
  CHECK(run.exit_code(1) == 3);
  const ProcessResult explained = runs.sandbox.plan("explain --failure flight");
  INFO(explained.out << explained.err);
  CHECK(explained.exit_code == 0);
  CHECK(explained.out.starts_with("rank 1 did not say how it ended: killed, stopped"));
  CHECK(lacks(explained.out, "rank 1 is gone") == "");
  CHECK(lacks(explained.out, "rank 1 compute") == "");
  CHECK(lacks(explained.out, "step 5 #") == "");
  const ProcessResult json = runs.sandbox.plan("explain --failure flight --json");
  CHECK(lacks(json.out, "\"verdict\":\"lost\",\"lost\":[1]") == "");
  CHECK(runs.sandbox.plan("explain --failure nowhere").exit_code == 2);
}
