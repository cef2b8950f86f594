// Faults on demand (`plan run --inject`) among threads: the right rank, the right exit code.
#include <filesystem>

#include "core/run/flight_record.hpp"
#include "runtime/training/faulty_device.hpp"
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
  CHECK(lacks(memory.report.reason, "step 2, rank 1 #") == "");
  CHECK(lacks(memory.report.reason, "out of memory") == "");
  const TempDir folder;
  RunSettings settings = with_fault(FaultKind::disk_full, 1, 3);
  settings.checkpoint_dir = folder.path().string();
  settings.checkpoint_every = 2;
  const Ran disk = run(plan_file(dp_case(2)), settings);
  INFO(disk.report.reason);
  CHECK(disk.exit_code() == 3);
  CHECK(lacks(disk.report.reason, "step_4.tmp/") == "");
  CHECK(lacks(disk.report.reason, "cannot be written: no space left on the device: ") == "");
  CHECK(lacks(disk.report.reason, " are needed, ") == "");
  CHECK(std::filesystem::exists(folder.path() / "step_2/manifest.json"));
}

TEST_CASE("a slow rank is named as the straggler, with what it costs") {
  const Ran ended = run(plan_file(dp_case(4)), with_fault(FaultKind::slow, 2, 0));
  REQUIRE(ended.exit_code() == 0);
  REQUIRE(ended.report.rank_times.size() == 4);
  for (const RankTime& each : ended.report.rank_times) {
    INFO("rank " << each.rank << " is behind by " << 1e3 * each.behind.in(kSecond) << " ms");
    // Two forwards a step, each at least so much longer.
    CHECK((each.behind > 0.75 * 2 * kSlowDown) == (each.rank == 2));
  }
}

TEST_CASE("a step with NaN gradients is skipped and counted, and changes nothing") {
  const PlanFile plan = plan_file(dp_case(2));
  const TempDir folder;
  RunSettings settings = settings_for(2);
  settings.checkpoint_dir = (folder.path() / "before").string();
  REQUIRE(run(plan, settings).exit_code() == 0);
  settings = with_fault(FaultKind::nan, 1, 2, 3);
  settings.checkpoint_dir = (folder.path() / "after").string();
  const Ran ended = run(plan, settings);
  INFO(ended.report.reason);
  CHECK(ended.exit_code() == 0);
  REQUIRE(ended.report.steps.size() == 3);
  CHECK(ended.report.steps[2].notes ==
        std::vector<std::string>{"the gradient norm is NaN: the step was skipped"});
  CHECK(ended.report.environment.at("skipped steps") == "1");
  check_same_files(folder.path() / "before/step_2", folder.path() / "after/step_3");
}

TEST_CASE("more skipped steps in a row than allowed end the run") {
  RunSettings settings = with_fault(FaultKind::nan, 0, 1, 6);
  settings.inject.push_back({FaultKind::nan, 0, 2});
  settings.inject.push_back({FaultKind::nan, 0, 3});
  settings.max_skipped_steps = 2;
  const Ran ended = run(plan_file(dp_case(2)), settings);
  CHECK(ended.exit_code() == 6);
  INFO(ended.report.reason);
  CHECK(lacks(ended.report.reason,
              "step 3: the gradient norm is NaN, in 3 steps in a row; "
              "--max-skipped-steps allows 2") == "");
  settings.max_skipped_steps = 3;
  CHECK(run(plan_file(dp_case(2)), settings).exit_code() == 0);
}

TEST_CASE("the flight records of a failed run name the collective, the group and the rank") {
  const TempDir folder;
  RunSettings settings = with_fault(FaultKind::skip, 2, 1);
  settings.timeout = Seconds{3};
  settings.flight_recorder = folder.path().string();
  CHECK(run(plan_file(dp_case(4)), settings).exit_code() == 4);
  const FailureRecords records = read_failure_records(folder.path().string()).value();
  CHECK(records.of.size() == 4);
  const std::string text = failure_text(records);
  CHECK(text.starts_with("rank 0 reports: rank 2 has not joined step 1 #"));
  CHECK(lacks(text, "the first wait: rank 0 reduce: step 1 #") == "");
  CHECK(lacks(text,
              "all_reduce of 4 f64 in the all (reduce) group of ranks {0,1,2,3} waits for "
              "rank 2") == "");
  CHECK(lacks(text, "  rank 2 reduce") == "");
  std::filesystem::remove(folder.path() / "flight_3.ring");
  const FailureVerdict verdict = verdict_of(read_failure_records(folder.path().string()).value());
  CHECK(verdict.kind == FailureVerdict::Kind::lost);
  CHECK(verdict.ranks == std::vector<int>{3});
}

TEST_CASE("faults that a run cannot commit are refused before it") {
  const PlanFile plan = plan_file(dp_case(2));
  const auto refusal = [&](FaultKind kind, int rank) {
    const Result<RunReport> report = run_plan(plan, with_fault(kind, rank, 0), {});
    return report ? "it ran" : report.error().message();
  };
  CHECK(lacks(refusal(FaultKind::stop, 2), "rank 2; expected a rank from 0 to 1") == "");
  CHECK(lacks(refusal(FaultKind::corrupt, 1),
              "corrupt, where all ranks are threads, which send no messages; expected one process "
              "per rank, connected by TCP") == "");
  CHECK(lacks(refusal(FaultKind::disk_full, 1), "expected --checkpoint-dir DIR") == "");
}
