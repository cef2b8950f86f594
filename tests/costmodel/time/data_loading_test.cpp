// Reading the tokens of a step from the cluster's storage.
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "tests/support/catch.hpp"
#include "topologies/description/description.hpp"

using namespace echelon;

namespace {

/// GPT-2 on two nodes: little compute for its tokens.
struct LoadingJob {
  ModelSpec model = load_model("gpt2").value();
  TrainingJob job;
  ClusterTopology cluster = ClusterTopology::load("dgx-h100", 16).value();
  Framework framework = find_framework("megatron-core").value();
  ParallelPlan plan;

  LoadingJob() {
    job.sequence = 1024;
    job.global_batch = 1024;
    job.precision = find_precision("bf16").value();
    plan.dp = plan.shard_group = 16;
    plan.microbatch = 4;
    plan.zero = 1;
    plan.layers_per_stage = {12};
    plan.recompute_layers = {0};
  }
  LoadingJob& with_storage(BytesPerSecond of_node) {
    MachineDescription machine = cluster.machine();
    machine.node.storage = of_node;
    cluster = ClusterTopology::of(machine, cluster.gpus()).value();
    return *this;
  }
  [[nodiscard]] TimePrediction priced() const {
    const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
    return CostModel(model, job, cluster, framework, calibration).price(plan).time;
  }
};

}  // namespace

TEST_CASE("tokens are read by every rank of a node, in two bytes for a small vocabulary") {
  LoadingJob j;
  j.with_storage(BytesPerSecond{1e9});
  const double of_rank = 2 * 1024.0 * 1024 / 16;
  CHECK(j.priced().data_load.in(kSecond) == Approx(8 * of_rank / 1e9));
  j.model.vocab = 65'500;
  CHECK(j.priced().data_load.in(kSecond) == Approx(8 * 2 * of_rank / 1e9));
}

TEST_CASE("one rank of a tensor-parallel group reads for all") {
  LoadingJob j;
  const Seconds alone = j.with_storage(BytesPerSecond{1e9}).priced().data_load;
  j.plan.tp = 2;
  j.plan.dp = j.plan.shard_group = 8;
  // Half as many ranks read twice as many samples.
  CHECK(j.priced().data_load.in(kSecond) == Approx(alone.in(kSecond)));
  j.plan.tp = 16;
  j.plan.dp = j.plan.shard_group = 1;
  j.model.heads = j.model.kv_heads = 16;
  CHECK(j.priced().data_load.in(kSecond) == Approx(2 * alone.in(kSecond)));
}

TEST_CASE("loading that takes less than the step costs nothing") {
  const TimePrediction time = LoadingJob().priced();
  CHECK(time.data_load > Seconds{});
  CHECK(time.data_load < time.step);
  CHECK(time.parts.data == Seconds{});
}

TEST_CASE("a step lasts as long as the loading of the next one, and its parts say so") {
  const TimePrediction fast = LoadingJob().priced();
  LoadingJob j;
  const TimePrediction slow = j.with_storage(BytesPerSecond{1e6}).priced();
  REQUIRE(slow.data_load > fast.step);
  CHECK(slow.step.in(kSecond) == Approx(slow.data_load.in(kSecond)));
  CHECK(slow.closed_form.in(kSecond) == Approx(slow.data_load.in(kSecond)));
  CHECK(slow.parts.data.in(kSecond) == Approx((slow.data_load - fast.step).in(kSecond)));
  CHECK(slow.parts.total().in(kSecond) == Approx(slow.step.in(kSecond)));
  for (const StageTime& stage : slow.stages) {
    CHECK(stage.total().in(kSecond) == Approx(slow.step.in(kSecond)));
  }
}

TEST_CASE("more storage bandwidth is never slower") {
  Seconds last{1e30};
  for (double rate = 1e6; rate < 1e10; rate *= 3) {
    LoadingJob j;
    const Seconds step = j.with_storage(BytesPerSecond{rate}).priced().step;
    CHECK(step <= last);
    last = step;
  }
}
