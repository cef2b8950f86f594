// Modules of transformers, operation by operation, next to what torch's dispatcher counted of them
// (tests/external/count_transformers.py, transformers 5.24 on torch 2.15).
#include <utility>

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/operators/operators.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

constexpr double kCountedTokens = 4096;

OperatorList counted_layer(const char* model, LayerCode code, LayerKind kind = LayerKind::dense) {
  TrainingJob job;
  job.sequence = static_cast<int>(kCountedTokens);
  job.global_batch = 8;
  job.precision = find_precision("bf16").value();
  job.layer_code = code;
  return layer_operators(load_model(model).value(), job, find_framework("fsdp2").value(),
                         {.microbatch = 1}, kind);
}

struct Counted {
  int forward = 0, backward = 0;                 ///< kernels
  double forward_bytes = 0, backward_bytes = 0;  ///< of element-wise ones but rotation, per token
};

Counted counted(const OperatorList& list) {
  Counted sum;
  for (const Operator& op : list.view()) {
    sum.forward += op.forward_kernels;
    sum.backward += op.backward_kernels;
    if (op.kind != OperatorKind::elementwise || op.name == "rope") continue;
    sum.forward_bytes += op.forward_traffic.in(kByte) / kCountedTokens;
    sum.backward_bytes += op.backward_traffic.in(kByte) / kCountedTokens;
  }
  return sum;
}

}  // namespace

TEST_CASE("a Llama layer of transformers launches and moves what was counted") {
  const Counted layer = counted(counted_layer("llama2-7b", LayerCode::transformers));
  // 38 forward. Backward 71, a slice's gradient in two kernels (4 more), attention's in three.
  CHECK(layer.forward == 38);
  CHECK(layer.backward == 71 + 4 + 2);
  // Per token and hidden unit 151.1 and 326.6, of which rotation moves 40.2 and 64.4 (and 4 more
  // in the cleared parts of slices' gradients).
  CHECK(layer.forward_bytes / 4096 == Approx(151.1 - 40.2).epsilon(0.005));
  CHECK(layer.backward_bytes / 4096 == Approx(326.6 - 64.4).epsilon(0.005));
}

TEST_CASE("norms of queries and keys are two more norms") {
  const Counted plain = counted(counted_layer("llama3-8b", LayerCode::transformers));
  const Counted normed = counted(counted_layer("qwen3-8b", LayerCode::transformers));
  CHECK(normed.forward == plain.forward + 16);  // 54 were counted of Qwen3, 38 of Llama
  CHECK(normed.backward == plain.backward + 32);
}

TEST_CASE("Liger's kernels leave experts alone to transformers' operations") {
  const auto dense = [](LayerCode code) { return counted(counted_layer("llama3-8b", code)); };
  CHECK(dense(LayerCode::liger).forward_bytes == dense(LayerCode::fused).forward_bytes);
  const auto bytes = [](const char* model, LayerCode code, std::string_view name) {
    const OperatorList list = counted_layer(model, code, LayerKind::moe);
    for (const Operator& op : list.view()) {
      if (op.name == name)
        return std::pair{op.forward_traffic.in(kByte) / kCountedTokens,
                         op.backward_traffic.in(kByte) / kCountedTokens};
    }
    return std::pair{0.0, 0.0};
  };
  for (const LayerCode code : {LayerCode::liger, LayerCode::transformers}) {
    // GPT-OSS: 4 rows per token. Biases gathered (16.1 + 8.1 bytes per token and hidden unit,
    // 0.2 of them read) and added (48 + 24), the gate 128; rows weighted, ordered and summed 42.
    const auto gate = bytes("gpt-oss-20b", code, "expert_activation");
    CHECK(gate.first / 2880 == Approx(16 + 8 + 48 + 24 + 16 + 16 + 16 + 16 + 24 + 16 + 24));
    const auto back = bytes("gpt-oss-20b", code, "unpermute");
    CHECK(back.first / 2880 == Approx(16 + 16 + 10));
    // Cleared and scattered 8 + 24, spread 10, products 24 and 16, their sum 8.
    CHECK(back.second / 2880 == Approx(8 + 24 + 10 + 24 + 16 + 8));
    // Qwen3-30B-A3B: 8 rows of 768 per token, 2048 wide: silu 12, product 18; backward 18 each,
    // and the halves put together 24.
    const auto silu = bytes("qwen3-30b-a3b", code, "expert_activation");
    CHECK(silu.first / 2048 == Approx(12 + 18));
    CHECK(silu.second / 2048 == Approx(18 + 18 + 18 + 24));
  }
  CHECK(bytes("gpt-oss-20b", LayerCode::fused, "unpermute").first / 2880 == Approx(16));
}

TEST_CASE("the host launches all kernels of transformers' layer, and waits for nothing less") {
  const ModelSpec model = load_model("llama2-7b").value();
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 1).value();
  const Framework framework = find_framework("fsdp2").value();
  const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  ParallelPlan plan;
  plan.layers_per_stage = {model.layers};
  const auto priced = [&](LayerCode code) {
    TrainingJob job;
    job.sequence = 128;
    job.global_batch = 1;
    job.precision = find_precision("bf16:fsdp-fp32-shards").value();
    job.layer_code = code;
    const CostModel costs(model, job, cluster, framework, calibration);
    return std::pair{costs.sharding_costs(sharding_of(plan)).dense.launches,
                     costs.price(plan).time.step.in(1_ms)};
  };
  const auto fused = priced(LayerCode::fused);
  const auto theirs = priced(LayerCode::transformers);
  CHECK(fused.first == 1);
  CHECK(theirs.first == Approx((38 + 77) / 45.0));
  CHECK(priced(LayerCode::liger) == fused);
  const double floor = (theirs.first - 1) * model.layers *
                       (calibration.host_layer_forward + calibration.host_layer_backward).in(1_ms);
  CHECK(theirs.second - fused.second > 0.5 * floor);
}
