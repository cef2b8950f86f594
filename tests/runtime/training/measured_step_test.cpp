// Times of ranks whose clocks or whose beginnings of communications differ from what spans mean.
#include "runtime/training/measured_step.hpp"

#include "runtime/executor/measured_stages.hpp"

#include "tests/runtime/executor/executor_run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

struct Times {
  Schedule schedule;
  std::vector<StepTimes> ranks;
};

/// Two stages of unequal work, two data-parallel ranks each, with reductions and a norm.
Times times_of_two_stages() {
  ScheduleSpec spec;
  spec.shape = {.kind = ScheduleKind::one_f_one_b, .ranks = 2, .microbatches = 4};
  spec.reduce_gradients = spec.clip = true;
  ScheduleCosts costs = one_second_each(spec.shape, 1_s);
  costs.stages[1].forward = 2_s;
  for (RankTimes& rank : costs.ranks) rank.reduce_bucket = rank.norm_reduce = 1_s;
  Times out{build_schedule(spec, costs), {}};
  const ProcessGrid grid = grid_of(out.schedule, 1, 2);
  out.ranks = measured_steps(out.schedule, grid, takes_of(out.schedule, grid, costs));
  return out;
}

void check_same(const std::vector<StepTimes>& some, const std::vector<StepTimes>& others) {
  REQUIRE(some.size() == others.size());
  for (std::size_t rank = 0; rank < some.size(); ++rank) {
    CHECK(some[rank].begin.in(1_s) == Approx(others[rank].begin.in(1_s)).margin(1e-6));
    for (std::size_t id = 0; id < some[rank].spans.size(); ++id) {
      INFO("rank " << rank << ", instruction " << id);
      const InstructionSpan& a = some[rank].spans[id];
      const InstructionSpan& b = others[rank].spans[id];
      CHECK(a.start.in(1_s) == Approx(b.start.in(1_s)).margin(1e-6));
      CHECK(a.end.in(1_s) == Approx(b.end.in(1_s)).margin(1e-6));
      CHECK(a.waited.in(1_s) == Approx(b.waited.in(1_s)).margin(1e-6));
    }
  }
}

TEST_CASE(
    "a kernel that waits for other members began with its wait, and is told from a transfer") {
  const Times known = times_of_two_stages();
  std::vector<StepTimes> by_gpus = known.ranks;
  Seconds waited;
  for (StepTimes& rank : by_gpus) {
    for (InstructionSpan& span : rank.spans) {
      waited += span.waited;
      span.start -= span.waited;
      span.waited = Seconds{};
    }
  }
  CHECK(waited > 5_s);
  begin_with_arrivals(known.schedule, by_gpus);
  check_same(by_gpus, known.ranks);
  const MeasuredStep expected = measured_step(known.schedule, known.ranks);
  const MeasuredStep found = measured_step(known.schedule, by_gpus);
  CHECK(found.parts.exposed[Axis::pp].in(1_s) == Approx(expected.parts.exposed[Axis::pp].in(1_s)));
  CHECK(found.parts.bubble().in(1_s) == Approx(expected.parts.bubble().in(1_s)));
  CHECK(found.parts.optimizer.in(1_s) == Approx(expected.parts.optimizer.in(1_s)));
}

TEST_CASE("ranks of a host that started another day are compared by the end of a common sum") {
  const Times known = times_of_two_stages();
  std::vector<StepTimes> on_two_hosts = known.ranks;
  for (std::size_t rank = 2; rank < on_two_hosts.size(); ++rank) {
    constexpr Seconds kDay{86400};
    on_two_hosts[rank].begin += kDay;
    on_two_hosts[rank].end += kDay;
    for (InstructionSpan& span : on_two_hosts[rank].spans) {
      span.start += kDay;
      span.end += kDay;
    }
  }
  align_clocks(known.schedule, on_two_hosts);
  check_same(on_two_hosts, known.ranks);
  std::vector<StepTimes> on_one = known.ranks;
  align_clocks(known.schedule, on_one);
  check_same(on_one, known.ranks);
}

/// One step of four ranks, 10 s of a backward in each, which all but rank 3 spend waiting in some
/// group for a rank that waits for rank 3: that one has no core for 6 s. Rank 0 waits for the
/// expert-parallel rank 2, ranks 1 and 2 for rank 3.
CostBreakdown parts_with_experts(const ParallelPlan& plan) {
  ScheduleSpec spec;
  spec.shape = {.kind = ScheduleKind::one_f_one_b, .ranks = 1, .microbatches = 1};
  const Schedule schedule = build_schedule(spec, one_second_each(spec.shape));
  std::size_t backward = 0;
  while (schedule.programs[0].instructions[backward].op != Op::backward) ++backward;
  std::vector<StepTimes> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    StepTimes& times = ranks.emplace_back();
    times.rank = rank;
    times.end = 10_s;
    times.spans.resize(schedule.programs[0].instructions.size());
    for (std::size_t id = backward + 1; id < times.spans.size(); ++id)
      times.spans[id].start = times.spans[id].end = 10_s;
    times.spans[backward].end = 10_s;
    const auto spend = [&](Within part, Seconds time) {
      times.spans[backward].within[static_cast<std::size_t>(part)] = time;
    };
    const bool with_experts = rank == 0 || rank == 1;
    spend(with_experts ? Within::ep_comm : Within::tp_comm, rank == 3 ? 1_s : 7_s);
    if (rank < 3) spend(with_experts ? Within::ep_peers : Within::tp_peers, 6_s);
    if (rank == 3) spend(Within::kernels_without_core, 6_s);
  }
  RunReport report;
  report.plan.plan = plan;
  write_measured(schedule, ranks, {}, report);
  return report.measured->time;
}

TEST_CASE("a rank that waits for experts of one without a core waits for the core") {
  ParallelPlan plan;
  plan.tp = plan.etp = plan.dp = plan.ep = 2;
  const CostBreakdown parts = parts_with_experts(plan);
  CHECK(parts.exposed[Axis::ep].in(1_s) == Approx(2 * 1 / 4.0));
  CHECK(parts.exposed[Axis::tp].in(1_s) == Approx(2 * 1 / 4.0));
  CHECK(parts.compute.in(1_s) == Approx(9));
  // Ranks of the other half share no pass: 0 and 1 wait for nobody without a core.
  plan.ep = 1;
  CHECK(parts_with_experts(plan).exposed[Axis::ep].in(1_s) == Approx(2 * 7 / 4.0));
}

}  // namespace
}  // namespace echelon
