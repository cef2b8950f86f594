// The same fault under every launcher: threads, mpirun, processes that others start.
#include <string>

#include "tests/cli/started.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::Background;
using echelon::test::lacks;
using echelon::test::Runs;
using echelon::test::Started;
using echelon::test::under_user_mpirun;
using echelon::test::within;

namespace {

bool is_without_mpirun() { return run_shell("command -v mpirun").exit_code != 0; }

/// A command in a mount namespace where the folder "small" of the sandbox is a disk of its own.
std::string on_small_disk(const std::string& command) {
  return "mkdir -p small && unshare -Urm sh -c " +
         shell_word("mount -t tmpfs -o size=1m none small && " + command);
}
bool has_small_disk(const Runs& runs) {
  return runs.sandbox.shell(on_small_disk("true")).exit_code == 0;
}

}  // namespace

TEST_CASE("plan run under its own mpirun ends with 130 on a signal, after report and checkpoint") {
  if (is_without_mpirun()) return skip("mpirun is not installed");
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string kept = "kept" + std::to_string(signal);
    std::filesystem::remove(runs.sandbox.file("events"));
    Background run(runs.exec("plan.json --launcher mpi --steps 1000000 --checkpoint-dir " + kept +
                             " --report " + kept + ".json"));
    REQUIRE(within(60, [&] { return runs.has_stepped(1); }));
    run.signal(signal);
    CHECK(run.exit_code_within(60) == 130);
    CHECK(lacks(runs.text("out"), "run interrupted: gpt2-tiny, 2 ranks") == "");
    const RunReport report = read_run_report(runs.sandbox.file(kept + ".json")).value();
    CHECK(report.end == RunReport::End::interrupted);
    CHECK(std::filesystem::exists(runs.sandbox.file(
        kept + "/step_" + std::to_string(report.steps.size()) + "/manifest.json")));
    CHECK(runs.nobody_is_left());
  }
}

TEST_CASE("given time, the user's own mpirun shows the report of an interrupted run") {
  if (is_without_mpirun()) return skip("mpirun is not installed");
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  Background run("export OMPI_MCA_odls_base_sigkill_timeout=10; " +
                 under_user_mpirun(runs, "--steps 1000000"));
  REQUIRE(within(60, [&] { return lacks(runs.text("err"), "step 0 (1 of ").empty(); }));
  run.signal(SIGINT);
  CHECK(run.exit_code_within(120) == 1);  // mpirun's own
  CHECK(lacks(runs.text("out"), "Run interrupted: gpt2-tiny, 2 ranks") == "");
  CHECK(runs.nobody_is_left());
}

TEST_CASE("a run says at its start that the user's own mpirun leaves it too little time to end") {
  if (is_without_mpirun()) return skip("mpirun is not installed");
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const auto said = [&](const std::string& timeout, const std::string& more) {
    const ProcessResult ran = runs.sandbox.shell(
        timeout + "timeout 60 sh -c " + shell_word(under_user_mpirun(runs, "--steps 1 " + more)));
    INFO(runs.text("err"));
    CHECK(ran.exit_code == 0);
    return runs.text("err");
  };
  const std::string advice = "leaves them time";
  CHECK(lacks(said("", ""), advice) != "");  // a step of milliseconds
  const std::string at_once =
      said("export OMPI_MCA_odls_base_sigkill_timeout=0; ", "--checkpoint-dir kept");
  CHECK(lacks(at_once, "report and checkpoint would be lost") == "");
  CHECK(lacks(at_once, "mpirun --mca odls_base_sigkill_timeout 10 " + advice) == "");
}

TEST_CASE("the processes of an mpirun that was killed end, after a checkpoint") {
  if (is_without_mpirun()) return skip("mpirun is not installed");
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  Background run(under_user_mpirun(runs, "--steps 1000000 --checkpoint-dir kept"));
  REQUIRE(within(60, [&] { return lacks(runs.text("err"), "step 0 (1 of ").empty(); }));
  run.signal(SIGKILL);
  CHECK(run.exit_code_within(60) == 128 + SIGKILL);
  CHECK(runs.nobody_is_left());
  const ProcessResult rest = runs.run("plan.json --steps 1 --checkpoint-dir kept --resume --json");
  INFO(rest.err);
  CHECK(rest.exit_code == 0);
}

TEST_CASE("a disk that is too small is foretold under every launcher, with the space it needs") {
  const Runs runs;
  if (!has_small_disk(runs)) return skip("this system lets nobody mount a disk of his own");
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const std::string run = " run plan.json --quiet --steps 4 --checkpoint-dir small/kept";
  const std::string port = echelon::test::free_port();
  const std::string rank_0 = runs.sandbox.program(echelon::test::words_of(0, 2, port)) + run;
  const std::string rank_1 = runs.sandbox.program(echelon::test::words_of(1, 2, port)) + run;
  std::vector<std::string> commands = {"timeout 60 " + runs.program() + run,
                                       rank_1 + " >other 2>&1 & timeout 60 " + rank_0};
  if (!is_without_mpirun())
    commands.push_back("timeout 60 " + runs.program() + run + " --launcher mpi");
  for (const std::string& command : commands) {
    INFO(command);
    const ProcessResult foretold = runs.sandbox.shell(on_small_disk(command));
    INFO(foretold.out << foretold.err);
    CHECK(foretold.exit_code == 3);
    CHECK(lacks(foretold.out + foretold.err,
                "--checkpoint-dir: small/kept: one checkpoint at a time of ") == "");
    CHECK(lacks(foretold.out + foretold.err, " need") == "");
    CHECK(lacks(foretold.out + foretold.err, " more on the disk, ") == "");
    CHECK(lacks(foretold.out + foretold.err, " are free") == "");
    CHECK(runs.nobody_is_left());
  }
}

TEST_CASE("a disk that fills up during the run is named under every launcher, by all ranks") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const std::string flags =
      "plan.json --steps 9 --checkpoint-every 2 --inject disk-full@1:2 --checkpoint-dir ";
  const auto check = [](const std::string& said) {
    INFO(said);
    CHECK(lacks(said, "step_4.tmp/") == "");
    CHECK(lacks(said, "cannot be written: no space left on the device: ") == "");
    CHECK(lacks(said, " are needed, ") == "");
    CHECK(lacks(said, " are free") == "");
  };
  std::vector<std::string> launchers = {"local"};
  if (!is_without_mpirun()) launchers.emplace_back("mpi");
  for (const std::string& launcher : launchers) {
    const ProcessResult ended = runs.run(flags + launcher + " --launcher " + launcher);
    CHECK(ended.exit_code == 3);
    check(ended.out + ended.err);
    CHECK(std::filesystem::exists(runs.sandbox.file(launcher + "/step_2/manifest.json")));
  }
  Started run(runs, 2, flags + "env --quiet");
  for (const int rank : {0, 1}) {
    CHECK(run.exit_code(rank) == 3);
    check(run.out(rank) + run.err(rank));
  }
  CHECK(std::filesystem::exists(runs.sandbox.file("env/step_2/manifest.json")));
  CHECK(runs.nobody_is_left());
}

TEST_CASE("changed data cannot be injected where we send no messages, and the reason is given") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const auto refusal = [&](const std::string& flags) {
    const ProcessResult refused = runs.run("plan.json --steps 3 --inject corrupt@1:1 " + flags);
    CHECK(refused.exit_code == 2);
    return refused.err;
  };
  const std::string instead =
      "expected one process per rank, connected by TCP; start the processes ";
  const std::string threads = refusal("");
  INFO(threads);
  CHECK(lacks(threads, "corrupt, where all ranks are threads, which send no messages") == "");
  CHECK(lacks(threads, instead) == "");
  if (is_without_mpirun()) return skip("mpirun is not installed");
  const std::string by_mpi = refusal("--launcher mpi");
  INFO(by_mpi);
  CHECK(lacks(by_mpi, "corrupt, where MPI carries the messages") == "");
  CHECK(lacks(by_mpi, instead) == "");
}

TEST_CASE("the text of a run names the straggler and its cost") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const ProcessResult slow = runs.sandbox.shell("COLUMNS=1000 timeout 60 " + runs.program() +
                                                " run plan.json --steps 6 --inject slow@1:0");
  INFO(slow.out << slow.err);
  REQUIRE(slow.exit_code == 0);
  CHECK(lacks(slow.out, "Straggler: rank 1 computes ") == "");
  CHECK(lacks(slow.out, "more than the median of its") == "");
  CHECK(lacks(slow.out, "that costs") == "");  // a line may end there
}
