#include "planner/economics.hpp"

#include <cmath>

#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"
#include "topologies/description/description.hpp"

using namespace echelon;

namespace {

constexpr Seconds kMinute{60};
constexpr Seconds kHour{3600};

}  // namespace

TEST_CASE("the interval between checkpoints is the one of Daly's examples") {
  // Figures 3, 4 and 5 of the paper: delta 5 min; M of 24 h, 6 h and 15 min.
  CHECK(std::round(daly_interval(5 * kMinute, 24 * kHour).in(kMinute)) == 117);
  CHECK(std::round(daly_interval(5 * kMinute, 6 * kHour).in(kMinute)) == 57);
  CHECK(std::round(10 * daly_interval(5 * kMinute, 15 * kMinute).in(kMinute)) == 91);
}

TEST_CASE("Young's interval grows with the square root of the mean time between failures") {
  const Seconds one = young_interval(kMinute, kHour);
  CHECK(young_interval(kMinute, 4 * kHour) / one == Approx(2));
  CHECK(young_interval(4 * kMinute, kHour) / one == Approx(2));
}

TEST_CASE("for rare failures Daly's interval is Young's") {
  const Seconds write = 1_s;
  const Seconds rare{1e9};
  CHECK(daly_interval(write, rare) / young_interval(write, rare) == Approx(1).epsilon(1e-4));
}

TEST_CASE("no interval is better than Daly's by more than a thousandth") {
  for (const double minutes : {30.0, 600.0, 6000.0}) {
    const Seconds mtbf = minutes * kMinute;
    const Seconds write = kMinute;
    const Seconds restart = 10 * kMinute;
    const double ours = useful_fraction(daly_interval(write, mtbf), write, restart, mtbf);
    for (double ratio = 0.05; ratio < 20; ratio *= 1.05) {
      const Seconds other = ratio * young_interval(write, mtbf);
      CHECK(useful_fraction(other, write, restart, mtbf) < ours * 1.001);
    }
  }
}

TEST_CASE("without failures only the checkpoints cost time") {
  const double fraction = useful_fraction(90_s, 10_s, 600_s, Seconds{1e12});
  CHECK(fraction == Approx(0.9).epsilon(1e-6));
}

TEST_CASE("goodput falls with the number of nodes when storage does not grow") {
  double last = 1;
  for (const int gpus : {8, 64, 512, 4096}) {
    PlanRequest r = request_for("7b", "dgx-h100", gpus);
    r.economics.checkpoint_bandwidth = 5_GBps;
    const auto goodput = goodput_of(r);
    REQUIRE(goodput.has_value());
    CHECK(goodput->fraction < last);
    last = goodput->fraction;
  }
}

TEST_CASE("checkpoints are written to the storage of the description, which a flag overrides") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  const Seconds usual = goodput_of(r)->write;
  CHECK(usual.in(kSecond) == Approx(goodput_of(r)->checkpoint.in(kByte) / (2e12 / 24e3 * 64)));
  MachineDescription machine = r.cluster.machine();
  machine.node.storage = 40_GBps;
  r.cluster = ClusterTopology::of(machine, 64).value();
  CHECK(goodput_of(r)->write.in(kSecond) ==
        Approx(goodput_of(r)->checkpoint.in(kByte) / (8 * 40e9)));
  r.economics.checkpoint_bandwidth = 5_GBps;
  CHECK(goodput_of(r)->write.in(kSecond) == Approx(goodput_of(r)->checkpoint.in(kByte) / 5e9));
}

TEST_CASE(
    "a checkpoint contains weights, master weights and moments once, however they are sharded") {
  const PlanRequest r = request_for("7b", "dgx-h100", 64);
  const double parameters = static_cast<double>(r.model.parameters());
  CHECK(goodput_of(r)->checkpoint.in(kByte) == Approx(parameters * (2 + 4 + 8)));
}

TEST_CASE("the job's failure rate is the sum over its nodes") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.economics.mtbf_per_node = 1000 * kHour;
  CHECK(goodput_of(r)->mtbf.in(kHour) == Approx(125));
}

TEST_CASE("16,384 GPUs fail as often as those of Llama 3 did") {
  // 419 unexpected interruptions in 54 days, and over 90 % effective training time (arXiv
  // 2407.21783).
  const PlanRequest r = request_for("llama3.1-405b", "dgx-h100", 16384);
  const auto goodput = goodput_of(r);
  CHECK(54 * 24 / goodput->mtbf.in(kHour) == Approx(419).epsilon(0.01));
  CHECK(goodput->fraction > 0.85);
  CHECK(goodput->fraction < 0.99);
}

TEST_CASE("faster checkpoint storage never lowers goodput") {
  PlanRequest r = request_for("70b", "dgx-h100", 512);
  double last = 0;
  for (const double gigabytes : {1.0, 10.0, 100.0, 1000.0}) {
    r.economics.checkpoint_bandwidth = BytesPerSecond{gigabytes * 1e9};
    CHECK(goodput_of(r)->fraction > last);
    last = goodput_of(r)->fraction;
  }
}

TEST_CASE(
    "at the critical batch twice the tokens are needed, and half the steps of a tiny batch's") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  CHECK(token_factor(r) == 1);
  r.economics.critical_batch = r.job.tokens_per_step();
  CHECK(token_factor(r) == Approx(2));
  // Steps S = E/B = E_min(1/B + 1/B_crit): far above B_crit a larger batch saves no steps.
  const auto steps = [&](std::int64_t batch) {
    r.job.global_batch = batch;
    return token_factor(r) / r.job.tokens_per_step();
  };
  CHECK(steps(1 << 24) / steps(1 << 25) == Approx(1).epsilon(1e-3));
}

TEST_CASE("money is GPUs times hours times price, and failures increase it") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.job.token_budget = 1e12;
  const Economics money = economics_of(r, 2_s);
  REQUIRE(money.for_budget.has_value());
  const double price = r.cluster.price_per_gpu_hour()->in(kDollar);
  const double hours = 1e12 / r.job.tokens_per_step() * 2 / 3600;
  CHECK(money.per_step->in(kDollar) == Approx(64 * price * 2 / 3600));
  CHECK(money.per_token->in(kDollar) == Approx(64 * price * 2 / 3600 / r.job.tokens_per_step()));
  CHECK(money.time_for_budget->in(kHour) == Approx(hours));
  CHECK(money.for_budget->in(kDollar) == Approx(64 * hours * price));
  CHECK(*money.expected_time / *money.time_for_budget == Approx(1 / money.goodput->fraction));
  CHECK(*money.expected_dollars / *money.for_budget == Approx(1 / money.goodput->fraction));
}

TEST_CASE("energy is board power times the time of each kind of work") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  CostBreakdown parts;
  parts.compute = 1_s;
  parts.recompute = 250_ms;
  parts.optimizer = 250_ms;
  parts.exposed[Axis::tp] = 300_ms;
  parts.exposed[Axis::dp] = 200_ms;
  parts.fill_drain = 600_ms;
  parts.host = 400_ms;
  // H100 SXM: 700 W. 1.5 s of kernels, 0.5 s of collectives, 1 s of waiting.
  const Energy energy = energy_of(r, parts).value();
  CHECK(energy.per_step.in(kKilowattHour) ==
        Approx(64 * 0.7 * (1.5 * 0.9 + 0.5 * 0.6 + 1.0 * 0.35) / 3600));
  CHECK(energy.most_per_step.in(kKilowattHour) == Approx(64 * 0.7 * 3.0 / 3600));
  CHECK_FALSE(energy.for_budget.has_value());
  r.job.token_budget = 1e12;
  const double steps = 1e12 / r.job.tokens_per_step();
  CHECK(*energy_of(r, parts)->for_budget / energy.per_step ==
        Approx(steps / goodput_of(r)->fraction));
}

TEST_CASE("without a token budget days are not reported") {
  const Economics money = economics_of(request_for("7b", "dgx-h100", 64), 2_s);
  CHECK_FALSE(money.time_for_budget.has_value());
  CHECK_FALSE(money.expected_time.has_value());
}

TEST_CASE("a misspelt objective gets the nearest") {
  const Result<Objective> objective = parse_objective("step-tme", "--objective");
  REQUIRE_FALSE(objective.ok());
  CHECK(objective.error().message().find("did you mean 'step-time'?") != std::string::npos);
}

namespace {

/// 7b on 8 nodes: 3 failures in 30 h of a run on 4 nodes, checkpoints of its very size.
PlanRequest with_measured_run(int nodes) {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  PastRun run;
  run.nodes = nodes;
  run.goodput = {.checkpoints = 5,
                 .checkpoint = goodput_of(r)->checkpoint,
                 .write = 40_s,
                 .stall = 4_s,
                 .starts = 4,
                 .failures = 3,
                 .running = 30 * kHour,
                 .restarts = 3,
                 .restart = 90_s};
  r.economics.measured = run;
  return r;
}

}  // namespace

TEST_CASE("a measured run stands for the assumptions about failures, checkpoints and restarts") {
  const auto goodput = goodput_of(with_measured_run(8)).value();
  CHECK(goodput.mtbf.in(kHour) == Approx(10));
  CHECK(goodput.write == 40_s);
  CHECK(goodput.stall == 4_s);
  CHECK(goodput.restart == 90_s);
  CHECK(goodput.evidence() == Evidence::measured);
  CHECK(goodput.interval == daly_interval(4_s, goodput.mtbf));
  CHECK(goodput.fraction ==
        useful_fraction(goodput.interval, goodput.stall, goodput.restart, goodput.mtbf));
}

TEST_CASE("of other nodes or bytes a measured run is scaled, and calibrates") {
  PlanRequest r = with_measured_run(4);
  CHECK(goodput_of(r)->mtbf.in(kHour) == Approx(5));  // twice the nodes
  CHECK(goodput_of(r)->evidence() == Evidence::calibrated);
  r = with_measured_run(8);
  r.economics.measured->goodput.checkpoint = goodput_of(r)->checkpoint / 2.0;
  CHECK(goodput_of(r)->write.in(kSecond) == Approx(80));
  CHECK(goodput_of(r)->stall.in(kSecond) == Approx(8));
  CHECK(goodput_of(r)->of_mtbf == Evidence::measured);
  CHECK(goodput_of(r)->evidence() == Evidence::calibrated);
}

TEST_CASE("flags go before a measured run, and that before the description") {
  PlanRequest r = with_measured_run(8);
  r.economics.mtbf_per_node = 8000 * kHour;
  r.economics.restart = 7_s;
  r.economics.checkpoint_bandwidth = 1_GBps;
  CHECK(goodput_of(r)->mtbf.in(kHour) == Approx(1000));
  CHECK(goodput_of(r)->restart == 7_s);
  CHECK(goodput_of(r)->stall == goodput_of(r)->write);
  CHECK(goodput_of(r)->evidence() == Evidence::calibrated);
  r = with_measured_run(8);
  const Seconds described = goodput_of(request_for("7b", "dgx-h100", 64))->mtbf;
  r.economics.measured->goodput.failures = 0;
  r.economics.measured->goodput.restarts = 0;
  CHECK(goodput_of(r)->mtbf == described);
  CHECK(goodput_of(r)->restart == kRestart);
  CHECK(goodput_of(r)->evidence() == Evidence::extrapolated);
}

TEST_CASE("checkpoints in flight one at a time are not closer than one takes") {
  PlanRequest r = with_measured_run(8);
  r.economics.measured->goodput.running = 300_s;  // a failure every 100 s
  CHECK(goodput_of(r)->interval == 40_s);
  CHECK(steps_between_checkpoints(40_s, 3_s) == 13);
  CHECK(steps_between_checkpoints(1_s, 3_s) == 1);
}
