// Copies of FSDP around its collectives, against bytes counted by hand.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/rates.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Half of the layers of Llama 2 7B on 64 ranks that split the data.
struct CopiesCase {
  ModelSpec model = load_model("7b").value();
  ClusterTopology cluster = ClusterTopology::load("dgx-h100", 64).value();
  Framework framework;
  TrainingJob job;
  Calibration calibration;

  CopiesCase(const char* name, int microbatches) : framework(find_framework(name).value()) {
    job.sequence = 2048;
    job.global_batch = 64 * microbatches;
    job.precision = find_precision("bf16").value();
    calibration = prior_calibration(cluster.gpu(), framework).value();
  }
  [[nodiscard]] StageTimes times(int zero) const {
    ParallelPlan plan;
    plan.dp = plan.shard_group = cluster.gpus();
    plan.zero = zero;
    plan.layers_per_stage = {model.layers};
    plan.recompute_layers = {0};
    const CostModel cost_model(model, job, cluster, framework, calibration);
    const ShardingCosts costs = cost_model.sharding_costs(plan);
    return StageModel(cost_model, plan, costs).times({.index = 1, .layers = {model.layers / 2, 0}});
  }
  /// Bytes per parameter that the copies take, forward and backward, of one microbatch.
  struct Copied {
    double forward, backward;
  };
  [[nodiscard]] Copied copied(int zero) const {
    CopiesCase without = *this;
    without.framework.unit_copies = UnitCopies::none;
    const StageTimes with = times(zero);
    const StageTimes base = without.times(zero);
    CHECK(with.compute.in(1_us) == Approx(base.compute.in(1_us)));
    // A layer: 4·4096² of attention, 3·4096·11008 of the MLP, two norms.
    const double layer = 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008 + 2 * 4096;
    const BytesPerSecond rate = device_rates(cluster.gpu(), calibration, Dtype::bf16).memory;
    const Seconds of_byte = Bytes{model.layers / 2 * layer} / rate;
    return {(with.forward - base.forward) / of_byte, (with.backward - base.backward) / of_byte};
  }
};

}  // namespace

TEST_CASE("FSDP2 copies gathered weights and reduced gradients beside its collectives") {
  const CopiesCase c("torchtitan", 1);
  // bf16 weights are read and written, bf16 gradients read and written in fp32.
  CHECK(c.copied(3).forward == Approx(2 + 2));
  CHECK(c.copied(3).backward == Approx((2 + 2) + (2 + 4)));
  CHECK(c.copied(2).forward == Approx(2 + 2));
  CHECK(c.copied(2).backward == Approx(2 + 4));
  CHECK(c.copied(1).forward == Approx(0).margin(1e-9));
  CHECK(c.copied(1).backward == Approx(0).margin(1e-9));
}

TEST_CASE("FSDP2 that reduces once adds up whole gradients") {
  CopiesCase c("torchtitan", 4);
  c.framework.accumulates_whole = true;
  // First bf16 to fp32, then three times bf16 added to fp32, in the end fp32 to the buffer.
  CHECK(4 * c.copied(2).backward == Approx((2 + 4) + 3 * (2 + 4 + 4) + (4 + 4)));
  CHECK(c.copied(2).forward == Approx(2 + 2));
}

TEST_CASE("FSDP1 puts gradients together to that of its flat parameter") {
  const CopiesCase c("llm-foundry", 1);
  CHECK(c.copied(3).forward == Approx(0).margin(1e-9));
  CHECK(c.copied(3).backward == Approx(2 + 2));
}
