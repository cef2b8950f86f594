// plan run on emulated GPUs in several processes, which communicate through NCCL's stand-in.
#include <functional>
#include <string>
#include <vector>

#include "tests/cli/gpu_runs.hpp"
#include "tests/cli/started.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using namespace echelon::test;

namespace {

namespace fs = std::filesystem;

std::string visible(const std::string& gpus) { return "CUDA_VISIBLE_DEVICES=" + gpus; }

/// Processes on GPUs; `words`: variables of each in addition to the launcher's.
Started on_gpus(const GpuRuns& runs, int ranks, const std::string& arguments,
                const std::function<std::string(int rank)>& words = {}) {
  const std::string port = free_port();
  std::vector<std::string> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(words_of(rank, ranks, port) + " " + runs.environment() + " " +
                  (words ? words(rank) : ""));
  }
  return Started(runs, all,
                 std::vector<std::string>(all.size(), arguments + " --backend cuda --quiet"));
}

/// Losses of processor cores: the two backends round to bf16 at different places.
void check_losses_of_cores(const GpuRuns& runs, int ranks, const std::string& degrees,
                           const RunReport& found) {
  runs.gpu_plan("cores.json", ranks, degrees, "this-machine");
  REQUIRE(runs.run("cores.json --steps 2 --report cores-report.json --launcher local").exit_code ==
          0);
  const RunReport expected = read_run_report(runs.sandbox.file("cores-report.json")).value();
  REQUIRE(found.steps.size() == 2);
  REQUIRE(expected.steps.size() == 2);
  for (std::size_t s = 0; s < 2; ++s) {
    CHECK(found.steps[s].loss == Approx(expected.steps[s].loss).epsilon(2e-3));
    CHECK(found.steps[s].gradient_norm == Approx(expected.steps[s].gradient_norm).epsilon(2e-2));
  }
}

std::string no_mpi(const GpuRuns& runs) {
  if (run_shell("command -v mpirun").exit_code != 0) return "mpirun is not installed";
  runs.gpu_plan("one.json", 1, "");
  const ProcessResult tried = runs.plan("run one.json --backend cuda --steps 1 --launcher mpi");
  if (tried.err.find("built without MPI") != std::string::npos) return "built without MPI";
  return "";
}

}  // namespace

TEST_CASE("processes train on a GPU each to the losses of processor cores, and one reports") {
  struct Case {
    int ranks, layers;
    std::string degrees;
    std::function<std::string(int)> words;  // visible GPUs of a process
  };
  for (const Case& each : std::vector<Case>{
           {2, 2, "--tp 2 --sequence-parallel", {}},
           {2, 4, "--tp 1 --pp 2 --schedule interleaved --vpp 2",
            [](int rank) { return visible(std::to_string(rank)); }},
           {4, 2, "--tp 1 --dp 4 --zero 3",
            [](int rank) { return visible(rank % 2 == 0 ? "0,1" : "2,3"); }},
           {4, 2, "--tp 1 --dp 2 --pp 2 --zero 1", {}},
           {2, 2, "--cp 2 --cp-comm p2p --zero 2", {}},
       }) {
    INFO(each.degrees);
    const GpuRuns runs(each.ranks, 1024, each.layers);
    runs.gpu_plan("plan.json", each.ranks, each.degrees);
    Started run =
        on_gpus(runs, each.ranks, "plan.json --steps 2 --report report.json --checkpoint-dir kept",
                each.words);
    for (int rank = 0; rank < each.ranks; ++rank) {
      INFO("rank " << rank);
      CHECK(run.exit_code(rank, 120) == 0);
      INFO(run.err(rank));
      CHECK((rank == 0) == !run.out(rank).empty());
      CHECK(run.err(rank).empty());
    }
    const RunReport report = read_run_report(runs.sandbox.file("report.json")).value();
    CHECK(report.backend == "cuda");
    CHECK(report.launcher == "torchrun");
    CHECK(report.executed_hash == report.schedule_hash);
    CHECK(lacks(report.environment.at("communicators"), "nccl") == "");
    CHECK(fs::exists(runs.sandbox.file("kept/step_2/weights.safetensors")));
    fs::remove_all(runs.sandbox.file("kept/flight"));  // the flight records of the ranks
    fs::remove(runs.sandbox.file("kept/starts.json"));
    fs::remove(runs.sandbox.file("kept/run.lock"));
    CHECK(std::distance(fs::directory_iterator(runs.sandbox.file("kept")), {}) == 1);
    check_losses_of_cores(runs, each.ranks, each.degrees, report);
    CHECK(runs.nobody_is_left());
  }
}

TEST_CASE("mpirun's processes train on a GPU each to the losses of processor cores") {
  const GpuRuns runs(2);
  if (const std::string why = no_mpi(runs); !why.empty()) return skip(why);
  const std::string degrees = "--tp 1 --dp 2 --zero 1";
  runs.gpu_plan("plan.json", 2, degrees);
  const ProcessResult ran = runs.plan(
      "run plan.json --backend cuda --launcher mpi --steps 2 --report report.json --quiet "
      "--checkpoint-dir kept");
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  const RunReport report = read_run_report(runs.sandbox.file("report.json")).value();
  CHECK(report.launcher == "mpi");
  CHECK(lacks(report.environment.at("communicators"), "nccl") == "");
  CHECK(fs::exists(runs.sandbox.file("kept/step_2/weights.safetensors")));
  check_losses_of_cores(runs, 2, degrees, report);
}

TEST_CASE("a killed process on GPUs is named by all others, with or without an error from NCCL") {
  for (const std::string words : {"", "PRETENDED_NETWORK=1"}) {
    INFO(words);
    const GpuRuns runs(4);
    runs.gpu_plan("plan.json", 4, "--tp 1 --dp 2 --pp 2");
    Started run = on_gpus(runs, 4, "plan.json --steps 1000000 --report lost.json",
                          [&](int) { return words; });
    REQUIRE(within(120, [&] { return has_stepped(runs); }));
    kill_rank(runs, 3);
    const std::string told = "rank 3 is gone: the connection to it (127.0.0.1) ended in the middle";
    for (const int rank : {0, 1, 2}) {
      CHECK(run.exit_code(rank, 20) == 7);
      INFO(rank << ": " << run.out(rank) << run.err(rank));
      CHECK(lacks(run.out(rank) + run.err(rank), told) == "");
    }
    CHECK(run.exit_code(3, 20) == 3);
    const RunReport report = read_run_report(runs.sandbox.file("lost.json")).value();
    CHECK(report.end == RunReport::End::failed);
    CHECK(report.reason.starts_with(told));
    CHECK(lacks(report.reason, "\n  rank 0") == "");  // its current operation
    CHECK(lacks(report.reason, ": step ") == "");
    CHECK_FALSE(report.steps.empty());
    CHECK(runs.nobody_is_left());
  }
}

TEST_CASE("a killed process under mpirun on GPUs ends the run, with its rank") {
  const GpuRuns runs(2);
  if (const std::string why = no_mpi(runs); !why.empty()) return skip(why);
  runs.gpu_plan("plan.json", 2, "--tp 1 --dp 2");
  Background run("cd " + shell_word(runs.sandbox.file("")) + " && exec " +
                 runs.sandbox.program("TMPDIR=" + shell_word(runs.sandbox.file("")) + " " +
                                      runs.environment()) +
                 " run plan.json --backend cuda --launcher mpi --steps 1000000 --quiet --events 5 "
                 "5>events >out 2>err");
  REQUIRE(within(120, [&] { return runs.has_stepped(1); }));
  kill_rank(runs, 1);
  const int exit_code = run.exit_code_within(60);
  INFO(runs.text("out") << runs.text("err"));
  CHECK(exit_code == 7);
  CHECK(lacks(runs.text("out") + runs.text("err"), "rank 1 is gone") == "");
  CHECK(runs.nobody_is_left());
}

TEST_CASE("if one process cannot use its GPU, all end with its exit code and reason") {
  struct Case {
    std::string words;  // of the last process
    int exit_code;
    std::string told;
  };
  for (const Case& each : {
           Case{visible(""), 3, "rank 1: --backend cuda: no GPU: CUDA finds none"},
           // The real plugin then finds no GPU, or is missing as well.
           Case{"ECHELON_BACKEND_PATH=/nowhere CUDA_VISIBLE_DEVICES=-1", 3,
                "rank 1: --backend cuda: no "},
           Case{"PRETENDED_MEBIBYTES=20 PRETENDED_NETWORK=1", 5,
                "rank 1: no memory for scratch of cuBLASLt"},
       }) {
    INFO(each.words);
    const GpuRuns runs(2);
    runs.gpu_plan("plan.json", 2, "--tp 1 --dp 2 --zero 3");
    Started run = on_gpus(runs, 2, "plan.json --steps 2 --report report.json",
                          [&](int rank) { return rank == 1 ? each.words : ""; });
    for (const int rank : {0, 1}) {
      CHECK(run.exit_code(rank) == each.exit_code);
      CHECK(lacks(run.out(rank) + run.err(rank), each.told) == "");
    }
    const RunReport report = read_run_report(runs.sandbox.file("report.json")).value();
    CHECK(report.reason.starts_with(each.told));
    CHECK(report.steps.empty());
  }
  const GpuRuns runs(2);
  runs.gpu_plan("plan.json", 2, "--tp 1 --dp 2");
  Started run = on_gpus(runs, 2, "plan.json --steps 2", [](int) { return visible("1"); });
  for (const int rank : {0, 1}) {
    CHECK(run.exit_code(rank) == 3);
    CHECK(lacks(run.out(rank) + run.err(rank),
                "ranks 0 and 1 are on one GPU, in different processes") == "");
  }
}
