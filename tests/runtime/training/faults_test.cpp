// Faults on demand (`plan run --inject`) among threads: the right rank, the right exit code.
#include <filesystem>

#include "tests/runtime/training/whole_runs.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

TrainedCase dp_case(int dp) {
  TrainedCase c;
  c.model = small_gpt2();
  c.plan = plan_for(c.model, 1, 1, dp);
  c.precision = "fp32";
  return c;
}

RunSettings with_fault(FaultKind kind, int rank, std::int64_t step, std::int64_t steps = 6) {
  RunSettings settings = settings_for(steps);
  settings.inject = {{kind, rank, step}};
  return settings;
}

}  // namespace

TEST_CASE("a rank that stops is named, with what it was doing") {
  RunSettings settings = with_fault(FaultKind::stop, 1, 1);
  settings.timeout = Seconds{3};
  const Ran ended = run(plan_file(dp_case(4)), settings);
  INFO(ended.report.reason);
  CHECK(ended.exit_code() == 4);
  CHECK(ended.report.reason.starts_with("rank 1 holds up the others: it has been at step 1 #"));
  CHECK(lacks(ended.report.reason, "no progress within the deadline of rank ") == "");
}

TEST_CASE("a rank that leaves out a collective is named, with the collective and its group") {
  RunSettings settings = with_fault(FaultKind::skip, 2, 1);
  settings.timeout = Seconds{3};
  const Ran ended = run(plan_file(dp_case(4)), settings);
  INFO(ended.report.reason);
  CHECK(ended.exit_code() == 4);
  CHECK(ended.report.reason.starts_with("rank 2 has not joined step 1 #"));
  CHECK(lacks(ended.report.reason,
              "all_reduce of 4 f64 in the all (reduce) group of ranks "
              "{0,1,2,3} waits for rank 2; it is at step 1 is issued") == "");
}

TEST_CASE("a call of another size is a defect that names both calls") {
  const Ran ended = run(plan_file(dp_case(4)), with_fault(FaultKind::mismatch, 3, 1));
  INFO(ended.report.reason);
  CHECK(ended.exit_code() == 70);
  CHECK(lacks(ended.report.reason, "calls all_reduce of 4 f64, rank 3 all_reduce of 3 f64") == "");
}

TEST_CASE("exhausted memory and a full disk name the rank, with their exit codes") {
  const Ran memory = run(plan_file(dp_case(2)), with_fault(FaultKind::oom, 1, 2));
  INFO(memory.report.reason);
  CHECK(memory.exit_code() == 5);
  CHECK(lacks(memory.report.reason, "step 2, rank 1: #") == "");
  CHECK(lacks(memory.report.reason, "out of memory") == "");
  const TempDir folder;
  RunSettings settings = with_fault(FaultKind::disk_full, 1, 3);
  settings.checkpoint_dir = folder.path().string();
  settings.checkpoint_every = 2;
  const Ran disk = run(plan_file(dp_case(2)), settings);
  INFO(disk.report.reason);
  CHECK(disk.exit_code() == 3);
  CHECK(lacks(disk.report.reason, "rank 1 cannot write its part of step 4: No space left") == "");
  CHECK(std::filesystem::exists(folder.path() / "step_2/manifest.json"));
}

TEST_CASE("faults that a run cannot commit are refused before it") {
  const PlanFile plan = plan_file(dp_case(2));
  const auto refusal = [&](FaultKind kind, int rank) {
    const Result<RunReport> report = run_plan(plan, with_fault(kind, rank, 0), {});
    return report ? "it ran" : report.error().message();
  };
  CHECK(lacks(refusal(FaultKind::stop, 2), "rank 2; expected a rank from 0 to 1") == "");
  CHECK(lacks(refusal(FaultKind::corrupt, 1), "expected --launcher env") == "");
  CHECK(lacks(refusal(FaultKind::disk_full, 1), "expected --checkpoint-dir DIR") == "");
}
