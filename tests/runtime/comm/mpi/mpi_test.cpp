// Processes under mpirun, whose program is peers/main.cpp; this file itself needs no MPI.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/skip.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

#ifdef ECHELON_MPI_PEERS

/// "", or the reason why no processes can be started.
std::string no_mpirun() {
  return run_shell("command -v mpirun").exit_code == 0 ? "" : "mpirun is not installed";
}

/// Open MPI's permission to run as root and to start more processes than cores.
ProcessResult run_peers(int processes, const std::string& what, const std::string& token) {
  return run_shell(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 200 mpirun "
      "--oversubscribe -n " +
      std::to_string(processes) + " " + shell_word(ECHELON_MPI_PEERS) + " " + what + " " +
      shell_word(token));
}

/// Processes with the token among their arguments.
int left_behind(const std::string& token) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "cmdline");
    std::ostringstream text;
    text << in.rdbuf();
    count += text.str().find(token) != std::string::npos ? 1 : 0;
  }
  return count;
}

/// mpirun has ended and, within a second or two of its SIGKILL, so have all other processes.
bool nobody_is_left(const std::string& token) {
  for (int tries = 0; tries < 50; ++tries) {
    if (left_behind(token) == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

TEST_CASE("processes give the same bits as threads, on three queues at once") {
  if (const std::string why = no_mpirun(); !why.empty()) return skip(why);
  const TempDir token;
  for (const int processes : {1, 2, 3, 4}) {
    const ProcessResult result = run_peers(processes, "operations", token.path().string());
    INFO(processes << " processes\n" << result.out << result.err);
    CHECK(result.exit_code == 0);
    for (int rank = 0; rank < processes; ++rank) {
      CHECK(result.out.find("rank " + std::to_string(rank) + ": ") != std::string::npos);
    }
  }
  CHECK(nobody_is_left(token.path().string()));
}

TEST_CASE("a world needs as many processes as the plan has ranks") {
  if (const std::string why = no_mpirun(); !why.empty()) return skip(why);
  const ProcessResult result = run_peers(2, "size", "");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("mpi: 2 processes; expected 4, one per rank of the plan; start one process "
                        "per rank: mpirun -n RANKS plan-run") != std::string::npos);
}

TEST_CASE("the end of one process ends all, with a reason, and no process remains") {
  if (const std::string why = no_mpirun(); !why.empty()) return skip(why);
  struct Case {
    std::string what;
    int exit_code;
    std::string reported;
  };
  const std::string all = "all (reduce) group of ranks {0,1,2,3}";
  for (const Case& each : {
           Case{"disagree", 70,
                all + ": rank 0 calls all_reduce of 64 f32, rank 3 all_gather of 32 f32"},
           Case{"parts", 70,
                all + ": in an all_to_all of f32 rank 3 sends 2 to rank 0, which expects 3"},
           Case{"message", 70,
                all + ": rank 0 calls send of 100 f32 to rank 1, rank 1 receive of 99 f32 from "
                      "rank 0"},
           Case{"absent", 4, "all_reduce of 1000000 f32 in the " + all},
           Case{"throw", 6, "rank 3: exit 6: loss is NaN"},
           Case{"die", 7, "rank 3 is gone: its process"},
       }) {
    const TempDir token;
    const auto start = std::chrono::steady_clock::now();
    const ProcessResult result = run_peers(4, each.what, token.path().string());
    const auto took = std::chrono::steady_clock::now() - start;
    INFO(each.what << "\n" << result.out << result.err);
    CHECK(took < std::chrono::seconds(60));
    CHECK(result.err.find(each.reported) != std::string::npos);
    // If a signal ends a process, mpirun returns 128 + the signal, or the exit code of the others.
    const bool signalled = each.what == "die" && result.exit_code == 128 + 9;
    CHECK((signalled || result.exit_code == each.exit_code));
    CHECK(nobody_is_left(token.path().string()));
  }
}

#else

TEST_CASE("processes give the same bits as threads, on three queues at once") {
  return skip("built without MPI: install libopenmpi-dev");
}

#endif

}  // namespace
}  // namespace echelon
