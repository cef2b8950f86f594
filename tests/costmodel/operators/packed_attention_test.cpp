// Attention within the documents of packed sequences (--document-lengths).
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

struct PackedJob {
  ModelSpec model = load_model("llama3-8b").value();
  TrainingJob job;
  ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  Framework framework = find_framework("megatron-core").value();
  ParallelPlan plan;

  explicit PackedJob(const char* documents) {
    job.sequence = 8192;
    job.global_batch = 64;
    job.precision = find_precision("bf16").value();
    if (documents[0] != '\0') job.documents = parse_document_lengths(documents, "test").value();
    plan.dp = plan.shard_group = 8;
    plan.zero = 1;
    plan.layers_per_stage = {32};
    plan.recompute_layers = {0};
  }
  [[nodiscard]] Operator attention(LayerSharding sharding = {}) const {
    const OperatorList list = layer_operators(model, job, framework, sharding);
    for (const Operator& op : list.view()) {
      if (op.kind == OperatorKind::attention) return op;
    }
    return {};
  }
  [[nodiscard]] PlanCosts priced() const {
    const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
    return CostModel(model, job, cluster, framework, calibration).price(plan);
  }
};

}  // namespace

TEST_CASE("attention's FLOPs are those of the documents, everything else stays") {
  const PackedJob whole("");
  const PackedJob packed("1024x6,2048x1");
  const double squares = 6 * 1024.0 * 1024 + 2048.0 * 2048;
  CHECK(packed.attention().forward / whole.attention().forward ==
        Approx(squares / (8192.0 * 8192)));
  CHECK(packed.attention().saved == whole.attention().saved);
  const OperatorList all = layer_operators(whole.model, whole.job, whole.framework, {});
  const OperatorList parts = layer_operators(packed.model, packed.job, packed.framework, {});
  REQUIRE(all.view().size() == parts.view().size());
  for (std::size_t i = 0; i < all.view().size(); ++i) {
    if (all.view()[i].kind == OperatorKind::attention) continue;
    CHECK(all.view()[i].forward == parts.view()[i].forward);
    CHECK(all.view()[i].forward_traffic == parts.view()[i].forward_traffic);
  }
}

TEST_CASE("documents as long as the sequence cost what a sequence without documents costs") {
  const PlanCosts whole = PackedJob("").priced();
  const PlanCosts packed = PackedJob("8192").priced();
  CHECK(packed.time.step.in(kSecond) == Approx(whole.time.step.in(kSecond)));
  CHECK(packed.mfu == Approx(whole.mfu));
  CHECK(packed.memory.peak == whole.memory.peak);
}

TEST_CASE("short documents shorten the step, and MFU counts no more than their pairs") {
  const PlanCosts whole = PackedJob("").priced();
  const PackedJob job("512");
  const PlanCosts packed = job.priced();
  CHECK(packed.time.step < whole.time.step);
  CHECK(packed.memory.peak == whole.memory.peak);
  // 6·L·a·(d_qk + d_v)·D per token: only the span differs.
  const double per_token = job.model.flops_per_token(512).in(kFlop);
  CHECK(packed.model_flops_per_gpu.in(1_TFLOPS) * 1e12 * packed.time.step.in(kSecond)*8 ==
        Approx(per_token * 64 * 8192));
  CHECK(job.model.flops_per_token(8192).in(kFlop)-per_token ==
        Approx(12 * 32 * 4096.0 * (8192 - 512)));
}

TEST_CASE("the kernels of a ring of context parallelism see their share of each document") {
  LayerSharding ring;
  ring.cp = 4;
  CHECK(PackedJob("2048").attention(ring).span == Approx(512));
  CHECK(PackedJob("").attention(ring).span == Approx(2048));
  CHECK(PackedJob("2048").attention().span == Approx(2048));
}
