// Ranks on processor cores: their description, and the price of more ranks than cores.
#include "topologies/import/this_machine.hpp"

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "tests/support/catch.hpp"
#include "topologies/description/description.hpp"

using namespace echelon;

namespace {

HostFacts four_cores() {
  HostFacts host;
  host.cores = 4;
  host.clock_ghz = 2.5;
  host.clock_source = "test";
  host.flops_per_cycle = 32;
  host.simd_source = "test";
  host.memory = 16_GB;
  return host;
}

PlanCosts priced(int dp, int pp, const HostFacts& host = four_cores(),
                 std::int64_t global_batch = 64) {
  const ModelSpec model = load_model("gpt2-tiny").value();
  ParallelPlan plan;
  plan.dp = dp;
  plan.pp = pp;
  plan.layers_per_stage.assign(static_cast<std::size_t>(pp), model.layers / pp);
  plan.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
  TrainingJob job;
  job.sequence = 256;
  job.global_batch = global_batch;
  job.precision = find_precision("fp32").value();
  const ClusterTopology cluster =
      this_machine(host, static_cast<std::int64_t>(plan.gpus())).value();
  const Framework framework = find_framework("echelon").value();
  const Calibration rates = pick_calibration(cluster.gpu(), framework).value();
  return CostModel(model, job, cluster, framework, rates).price(plan);
}

}  // namespace

TEST_CASE("ranks divide the cores and the memory of the machine") {
  const ClusterTopology two = this_machine(four_cores(), 2).value();
  CHECK(two.name() == "this-machine");
  CHECK(two.gpus() == 2);
  CHECK(two.gpu().name == "cpu");
  CHECK(two.gpu().peak(Dtype::fp32) / FlopsPerSecond{1e9} == Approx(2 * 2.5 * 32));
  CHECK(two.gpu().memory / 1_GB == Approx(7));
  CHECK(two.node().at_once() == 2);
  const ClusterTopology eight = this_machine(four_cores(), 8).value();
  CHECK(eight.gpu().peak(Dtype::fp32) / FlopsPerSecond{1e9} == Approx(2.5 * 32));
  CHECK(eight.gpu().memory / 1_GB == Approx(1.75));
  CHECK(eight.node().at_once() == 4);
  CHECK(this_machine(four_cores(), 0)->gpus() == 4);
}

TEST_CASE("too many ranks for a computer are refused with its maximum") {
  const auto many = this_machine(four_cores(), 65);
  REQUIRE(!many.ok());
  CHECK(many.error().message().find("at most 64") != std::string::npos);
}

TEST_CASE("a cluster's hash includes the cores that ranks share") {
  HostFacts more = four_cores();
  const std::string before = canonical_json(this_machine(more, 2)->machine());
  CHECK(before == canonical_json(this_machine(more, 2)->machine()));
  more.cores = 5;
  CHECK(before != canonical_json(this_machine(more, 2)->machine()));
}

TEST_CASE("ranks on processor cores have their own rates") {
  const ClusterTopology cluster = this_machine(four_cores(), 2).value();
  const Calibration rates =
      pick_calibration(cluster.gpu(), find_framework("echelon").value()).value();
  CHECK(rates.name == "cpu");
  CHECK(rates.evidence == Evidence::extrapolated);
  CHECK(rates.context == Bytes{});
}

TEST_CASE("twice as many data-parallel ranks as cores take as long as one per core, or longer") {
  const PlanCosts four = priced(4, 1);
  const PlanCosts eight = priced(8, 1);
  CHECK(four.time.turns == Seconds{});
  CHECK(eight.time.step > (1 - 1e-12) * eight.time.shared);  // rounding of the parts
  CHECK(eight.time.turns > Seconds{});
  // The same tokens on the same cores: at least as long, and not much longer.
  CHECK(eight.time.step > 0.99 * four.time.step);
  CHECK(eight.time.step < 1.3 * four.time.step);
  CHECK(eight.time.parts.total() / eight.time.step == Approx(1));
}

TEST_CASE("cores idle while a pipeline fills and drains are lost time") {
  // Four stages on two cores. One core is idle while only the first stage has work: half a chunk's
  // forward and backward in all, or a quarter of what two cores need for a microbatch; and the
  // updates, which are less.
  HostFacts two = four_cores();
  two.cores = 2;
  const Seconds some = priced(1, 4, two, 32).time.shared;
  const Seconds more = priced(1, 4, two, 64).time.shared;
  const Seconds of_microbatch = (more - some) / 32;
  const Seconds whatever_the_batch = some - 32 * of_microbatch;
  CHECK(whatever_the_batch > 0.25 * of_microbatch);
  CHECK(whatever_the_batch < 0.6 * of_microbatch);
}

TEST_CASE("a pipeline's waiting ranks lend their cores") {
  // Two pipelines of four ranks on four cores: together they use the cores fully, and each fills
  // the bubble of the other.
  const PlanCosts alone = priced(1, 4);
  const PlanCosts both = priced(2, 4);
  CHECK(alone.time.turns == Seconds{});
  CHECK(both.time.step < alone.time.step);
  CHECK(both.time.step > (1 - 1e-12) * both.time.shared);
}
