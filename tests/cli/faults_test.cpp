// Faults on demand in processes: who is named, by whom, with which exit code.
#include <string>

#include "tests/cli/started.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::kill_rank;
using echelon::test::lacks;
using echelon::test::Runs;
using echelon::test::Started;

TEST_CASE("all processes name the one that was stopped") {
  const Runs runs;
  runs.plan("plan.json", 4, "--dp 4 --tp 1");
  Started run(runs, 4, "plan.json --steps 1000000 --quiet --inject stop@2:40 --timeout 6s");
  for (const int rank : {0, 1, 3}) {
    CHECK(run.exit_code(rank) == 4);
    const std::string said = run.out(rank) + run.err(rank);
    INFO(said);
    CHECK(lacks(said, "rank 2 has sent nothing for ") == "");
    CHECK(lacks(said, " s, last seen at step ") == "");
  }
  kill_rank(runs, 2);
  CHECK(run.exit_code(2) == 3);
  CHECK(runs.nobody_is_left());
}

TEST_CASE("rank 0 is named when it was stopped itself") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  Started run(runs, 2, "plan.json --steps 1000000 --quiet --inject stop@0:40 --timeout 6s");
  CHECK(run.exit_code(1) == 4);
  CHECK(lacks(run.out(1) + run.err(1), "rank 0 has sent nothing for ") == "");
  kill_rank(runs, 0);
  CHECK(run.exit_code(0) == 3);
  CHECK(runs.nobody_is_left());
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
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  Started run(runs, 2, "plan.json --steps 1000000 --quiet --inject corrupt@1:2");
  for (const int rank : {0, 1}) {
    CHECK(run.exit_code(rank) == 3);
    const std::string said = run.out(rank) + run.err(rank);
    CHECK(lacks(said, "bytes from rank 1 (127.0.0.1) to rank 0 has changed on its way") == "");
  }
  CHECK(runs.nobody_is_left());
}

TEST_CASE("a process that is killed on demand is named by the others") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  Started run(runs, 2, "plan.json --steps 1000000 --quiet --inject kill@1:2");
  CHECK(run.exit_code(0) == 7);
  CHECK(lacks(run.out(0) + run.err(0), "rank 1 is gone") == "");
  CHECK(run.exit_code(1) == 3);
  CHECK(runs.nobody_is_left());
}
