// plan run in processes that an external launcher started; here the test starts them with
// torchrun's variables.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/cli/started.hpp"
#include "tests/places.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::free_port;
using echelon::test::has_stepped;
using echelon::test::kill_rank;
using echelon::test::lacks;
using echelon::test::loopback;
using echelon::test::losses_of;
using echelon::test::Runs;
using echelon::test::Started;
using echelon::test::within;
using echelon::test::words_of;

namespace {

namespace fs = std::filesystem;

bool somebody_listens_at(const std::string& port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in at = loopback(std::stoi(port));
  const bool is_there = connect(descriptor, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  close(descriptor);
  return is_there;
}

/// The last one.
std::string line_of(const std::string& text) {
  const std::string all = text.substr(0, text.find_last_not_of('\n') + 1);
  return all.substr(all.rfind('\n') + 1);
}

}  // namespace

TEST_CASE("externally started processes compute the bits of threads, and one reports") {
  const Runs runs;
  const std::vector<std::pair<int, std::string>> plans = {{2, "--tp 2"},
                                                          {2, "--pp 2 --tp 1"},
                                                          {4, "--tp 2 --pp 2"},
                                                          {4, "--dp 4 --tp 1 --zero 3"},
                                                          {2, "--cp 2 --cp-comm a2a"},
                                                          {2, "--cp 2 --cp-comm p2p"}};
  for (const auto& [ranks, degrees] : plans) {
    INFO(degrees);
    runs.plan("plan.json", ranks, degrees);
    const ProcessResult local =
        runs.run("plan.json --steps 5 --report local.json --checkpoint-dir local");
    REQUIRE(local.exit_code == 0);
    Started run(runs, ranks, "plan.json --steps 5 --report env.json --checkpoint-dir env");
    for (int rank = 0; rank < ranks; ++rank) {
      INFO("rank " << rank);
      CHECK(run.exit_code(rank) == 0);
      INFO(run.err(rank));
      CHECK((rank == 0) == !run.out(rank).empty());
      CHECK((rank == 0) == !run.err(rank).empty());
      CHECK((rank == 0) == has_stepped(runs));
      fs::remove(runs.sandbox.file("events0"));
    }
    CHECK(lacks(run.out(0), "Run completed: gpt2-tiny") == "");
    CHECK(lacks(run.err(0), "step 4 (5 of 5)") == "");
    const RunReport one = read_run_report(runs.sandbox.file("local.json")).value();
    const RunReport other = read_run_report(runs.sandbox.file("env.json")).value();
    CHECK(losses_of(one).size() == 5);
    CHECK(losses_of(one) == losses_of(other));
    CHECK(slurp(runs.sandbox.file("local/step_5/weights.safetensors")) ==
          slurp(runs.sandbox.file("env/step_5/weights.safetensors")));
    CHECK(other.launcher == "torchrun");
    CHECK(other.executed_hash == one.executed_hash);
    CHECK(other.spans.size() == one.spans.size());
    fs::remove_all(runs.sandbox.file("local"));
    fs::remove_all(runs.sandbox.file("env"));
  }
  CHECK(runs.nobody_is_left());
}

TEST_CASE("plan run detects that mpirun started it") {
  if (run_shell("command -v mpirun").exit_code != 0) return skip("mpirun is not installed");
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const std::string mpirun =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun --oversubscribe "
      "-n 2 " +
      shell_word(ECHELON_PLAN) + " run plan.json --steps 2 --json --report mpi.json";
  const ProcessResult result = runs.sandbox.shell(mpirun);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(read_run_report(runs.sandbox.file("mpi.json")).value().launcher == "mpi");
  const ProcessResult twice = runs.sandbox.shell(mpirun + " --launcher mpi");
  CHECK(twice.exit_code == 2);
  CHECK(lacks(twice.err, "expected env; each of these processes would start its own mpirun") == "");
}

TEST_CASE("a killed process is named by all others, which end within seconds") {
  // Ranks 1 and 2 of the second plan exchange no data and have no connection.
  const std::vector<std::pair<std::string, int>> cases = {{"--dp 4 --tp 1", 3},
                                                          {"--tp 2 --pp 2", 1}};
  for (const auto& [degrees, killed] : cases) {
    CAPTURE(degrees);
    const Runs runs;
    runs.plan("plan.json", 4, degrees);
    Started run(runs, 4, "plan.json --steps 1000000 --quiet --report lost.json");
    REQUIRE(within(60, [&] { return has_stepped(runs); }));
    kill_rank(runs, killed);
    const std::string told = "rank " + std::to_string(killed) +
                             " is gone: the connection to it (127.0.0.1) ended in the middle";
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == killed) continue;
      CHECK(run.exit_code(rank, 10) == 7);
      INFO(rank << ": " << run.out(rank) << run.err(rank));
      CHECK(lacks(run.out(rank) + run.err(rank), told) == "");
    }
    CHECK(run.exit_code(killed, 10) == 3);
    CHECK(lacks(run.err(killed), "plan-run: killed by signal 9") == "");
    const RunReport report = read_run_report(runs.sandbox.file("lost.json")).value();
    CHECK(report.end == RunReport::End::failed);
    CHECK(report.reason.starts_with(told));
    CHECK(lacks(report.reason, "\n  rank 0") == "");  // its current operation
    CHECK(lacks(report.reason, ": step ") == "");
    CHECK(runs.nobody_is_left());
  }
}

TEST_CASE("a failure of one process ends all with its exit code and reason") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  {
    Started run(runs, 2, "plan.json --steps 1000000 --quiet --checkpoint-dir kept");
    REQUIRE(within(60, [&] { return has_stepped(runs); }));
    run.process(1).signal(SIGINT);
    CHECK(run.exit_code(0) == 130);
    CHECK(run.exit_code(1) == 130);
    CHECK(fs::exists(runs.sandbox.file("kept")));
    CHECK(run.err(1).empty());
  }
  REQUIRE(runs.run("plan.json --steps 1 --export weights").exit_code == 0);
  std::string weights = slurp(runs.sandbox.file("weights/model.safetensors"));
  std::fill(weights.end() - 64, weights.end(), '\xff');  // NaN in any format
  runs.sandbox.write("weights/model.safetensors", weights);
  Started run(runs, 2, "plan.json --steps 9 --quiet --init-from weights --max-skipped-steps 0");
  CHECK(run.exit_code(0) == 6);
  CHECK(run.exit_code(1) == 6);
  CHECK(lacks(run.err(1), "plan-run: rank 1: rank 0: step 0: the loss is NaN") == "");
  CHECK(runs.nobody_is_left());
}

TEST_CASE("incompatible processes are reported") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  runs.plan("other.json", 2, "--tp 2");
  {
    const std::string port = free_port();
    Started run(runs, {words_of(0, 2, port), words_of(1, 2, port)},
                {"plan.json --quiet", "plan.json --quiet --steps 7"});
    CHECK(run.exit_code(0) == 2);
    CHECK(run.exit_code(1) == 2);
    CHECK(lacks(run.err(0), "127.0.0.1:" + port + ": rank 1 of 2 has other settings") == "");
    CHECK(lacks(run.err(1), "rank 0 refuses: rank 1 of 2 has other settings than rank 0") == "");
  }
  {
    const std::string port = free_port();
    Started run(runs, {words_of(0, 2, port), words_of(1, 2, port)},
                {"plan.json --quiet", "other.json --quiet"});
    CHECK(run.exit_code(0) == 2);
    CHECK(run.exit_code(1) == 2);
    CHECK(lacks(run.err(1), "rank 0 refuses: rank 1 of 2 has another plan than rank 0") == "");
  }
  const std::string port = free_port();
  Started waits(runs, {words_of(0, 2, port)}, {"plan.json --quiet --timeout 30s"});
  const std::string taken = "127.0.0.1:" + port + ": the port is in use on the host of rank 0";
  REQUIRE(within(20, [&] { return somebody_listens_at(port); }));
  const ProcessResult second =
      runs.sandbox.shell("timeout 60 " + runs.sandbox.program(words_of(0, 2, port)) +
                         " run plan.json --quiet --timeout 100ms");
  INFO(second.err << waits.err(0));
  CHECK(second.exit_code == 3);
  CHECK(lacks(second.err, taken) == "");
  waits.process(0).signal(SIGINT);
  CHECK(waits.exit_code(0, 10) == 130);
  CHECK(lacks(waits.err(0), "interrupted while waiting; missing: rank 1") == "");
}

TEST_CASE("an invalid launcher, or one whose processes do not connect, is reported") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const std::string port = free_port();
  const std::string slurm =
      "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 "
      "SLURM_STEP_NODELIST=n[1-2] ";
  struct Case {
    std::string words, flags;
    int exit_code;
    std::string says;
  };
  for (const Case& each : {
           Case{words_of(0, 2, port), "--timeout 500ms", 3,
                "not all processes joined within 0.5 s; missing: rank 1"},
           Case{words_of(1, 2, port), "--timeout 500ms", 3,
                "no rank 0 within 0.5 s: Connection refused; MASTER_ADDR and MASTER_PORT are "},
           Case{words_of(1, 4, port), "", 2,
                "RANK: rank 1 of 4; expected 2, one process per rank of the plan"},
           Case{words_of(2, 2, port), "", 2, "RANK: '2'; expected a whole number from 0 to 1"},
           Case{"RANK=1 WORLD_SIZE=2 MASTER_PORT=1", "", 2, "MASTER_ADDR: not set for rank 1 of 2"},
           Case{"RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1", "", 2, "MASTER_PORT: not set for rank 1"},
           Case{"RANK=1", "", 2, "RANK: set, but WORLD_SIZE is not"},
           Case{slurm + words_of(0, 2, port), "", 2, "two launchers disagree"},
           Case{"", "--launcher env", 2, "--launcher env: no launcher in the environment"},
           Case{"RANK=0 WORLD_SIZE=1", "--launcher env", 2, "RANK: rank 0 of 1; expected 2"},
       }) {
    INFO(each.words << " " << each.flags);
    const ProcessResult result = runs.sandbox.shell(
        "timeout 60 " + runs.sandbox.program(each.words) + " run plan.json --quiet " + each.flags);
    INFO(result.out << result.err);
    CHECK(result.exit_code == each.exit_code);
    CHECK(result.out.empty());
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(lacks(line_of(result.err), each.says) == "");
  }
}

TEST_CASE("an allocation, a single process and --launcher local run all ranks in one process") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  for (const std::string words :
       {"SLURM_JOB_ID=7 SLURM_NTASKS=2 SLURM_JOB_NODELIST=n1", "RANK=0 WORLD_SIZE=1",
        "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", "RANK=5"}) {
    INFO(words);
    const ProcessResult result = runs.sandbox.shell("timeout 60 " + runs.sandbox.program(words) +
                                                    " run plan.json --steps 1 --json" +
                                                    (words == "RANK=5" ? " --launcher local" : ""));
    CHECK(result.exit_code == 0);
    CHECK(lacks(result.out, "\"launcher\":\"local\"") == "");
  }
}

TEST_CASE("plan doctor names its launcher") {
  const Runs runs;
  const auto told = [&](const std::string& words) {
    const ProcessResult result = runs.sandbox.plan("doctor", words + " COLUMNS=200");
    const std::size_t at = result.out.find("started by");
    REQUIRE(at != std::string::npos);
    return result.out.substr(at, result.out.find('\n', at) - at);
  };
  CHECK(lacks(told(""), "no launcher: plan run starts all ranks itself") == "");
  CHECK(lacks(told(words_of(3, 8, "29500")),
              "torchrun: rank 3 of 8 (RANK), master 127.0.0.1:29500") == "");
  CHECK(lacks(told("RANK=1"), "WORLD_SIZE is not") == "");
}
