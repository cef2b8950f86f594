// What weights in 4 bits change of a plan's time, memory and traffic.
#include "core/plan/quantized_weights.hpp"

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/operators/operators.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

constexpr double kSample = 2048;
constexpr double kWidth = 8192, kQueryWidth = 8192, kKeyWidth = 1024, kFfnWidth = 28672,
                 kDepth = 80;
constexpr double kQuantized =
    2 * kWidth * kQueryWidth + 2 * kWidth * kKeyWidth + 3 * kWidth * kFfnWidth;
constexpr double kBothEnds = 2 * 32000 * kWidth + kWidth;  // embedding, head, last norm
constexpr double kLayerNorms = 2 * kWidth;                 // of a layer
// Rank 64 on all seven modules of a layer.
constexpr double kAllAdapters =
    64 * (4 * kWidth + 2 * kQueryWidth + 2 * kKeyWidth + 2 * kWidth + 3 * kFfnWidth + kWidth);

TrainingJob quantized_job(const char* quantized) {
  TrainingJob job;
  job.sequence = static_cast<int>(kSample);
  job.global_batch = 8;
  job.precision = find_precision("bf16:fsdp-fp32-shards").value();
  job.adapters = parse_adapters("64:linear_qkv,linear_proj,linear_fc1,linear_fc2", "", {}).value();
  if (quantized != nullptr) job.quantized_weights = parse_quantized_weights(quantized, "").value();
  return job;
}

OperatorList quantized_layer(const char* quantized) {
  return layer_operators(load_model("llama2-70b").value(), quantized_job(quantized),
                         find_framework("torchtitan").value(), {.microbatch = 1});
}

Operator quantized_operator(const OperatorList& list, std::string_view name) {
  for (const Operator& op : list.view()) {
    if (op.name == name) return op;
  }
  FAIL("no operator " << name);
  return {};
}

/// Llama 2 70B on GPUs of one node, all layers recomputed.
struct PricedQuantized {
  explicit PricedQuantized(const char* quantized, int zero = 3, int gpus = 8)
      : job(quantized_job(quantized)), cluster(ClusterTopology::load("dgx-h100", gpus).value()) {
    plan.dp = gpus;
    plan.zero = zero;
    plan.shard_group = gpus;
    plan.layers_per_stage = {80};
    plan.recompute = Recompute::full;
    plan.recompute_layers = {80};
    costs = cost_model().price(plan);
  }
  [[nodiscard]] CostModel cost_model() const {
    return {model, job, cluster, framework, calibration};
  }
  [[nodiscard]] StageTraffic traffic() const {
    const CostModel cost = cost_model();
    const ShardingCosts sharding = cost.sharding_costs(sharding_of(plan));
    const StageModel stage_model(cost, plan, sharding);
    std::vector<Stage> stages;
    stages_of(cost, plan, stages);
    return stage_model.traffic(stages[0]);
  }
  [[nodiscard]] const MemoryBreakdown& memory() const { return costs.memory.stages[0]; }
  ModelSpec model = load_model("llama2-70b").value();
  TrainingJob job;
  ClusterTopology cluster;
  Framework framework = find_framework("torchtitan").value();
  Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  ParallelPlan plan;
  PlanCosts costs;
};

}  // namespace

TEST_CASE("each product of a layer unpacks its weight, module by module") {
  const OperatorList list = quantized_layer("nf4");
  const OperatorList plain = quantized_layer(nullptr);
  CHECK(quantized_parameters_per_rank(list) == kQuantized);
  CHECK(quantized_parameters_per_rank(plain) == 0);
  const auto bytes = [&](const char* name) {
    return quantized_operator(list, name).unpacking.in(kByte);
  };
  CHECK(bytes("qkv") == Approx(2.5625 * kWidth * (kQueryWidth + 2 * kKeyWidth)));
  CHECK(bytes("mlp_down") == Approx(2.5625 * kWidth * kFfnWidth));
  CHECK(quantized_operator(list, "qkv").unpacking_kernels == 3);
  CHECK(quantized_operator(list, "mlp_up").unpacking_kernels == 2);
  CHECK(quantized_operator(quantized_layer("nf4:double-quant"), "mlp_up").unpacking_kernels == 6);
  CHECK(quantized_operator(list, "adapter_in").unpacking == Bytes{});
  // The up projection's backward: gradients of gate and up, and one of the two weights in bf16.
  CHECK(quantized_operator(list, "mlp_up").transient.in(kByte) ==
        Approx(2 * (2 * kSample * kFfnWidth + kWidth * kFfnWidth)));
  CHECK(list.transient() > plain.transient());
}

TEST_CASE("ZeRO-3 splits packed weights, and every rank keeps all constants") {
  const double rest = 2 * (kBothEnds + kDepth * kLayerNorms) + 4 * kDepth * kAllAdapters;
  const auto weights = [](const char* quantized, int zero, int gpus) {
    return PricedQuantized(quantized, zero, gpus).memory().weights.in(kByte);
  };
  CHECK(weights(nullptr, 3, 8) == Approx((2 * kDepth * kQuantized + rest) / 8));
  CHECK(weights("nf4", 3, 8) ==
        Approx((kDepth * kQuantized / 2 + rest) / 8 + kDepth * kQuantized / 16));
  CHECK(weights("nf4:double-quant", 3, 8) == Approx((kDepth * kQuantized / 2 + rest) / 8 +
                                                    kDepth * kQuantized * (1.0 / 64 + 1.0 / 4096)));
  CHECK(weights("nf4", 0, 8) == weights("nf4", 0, 1));
  CHECK(weights("nf4", 0, 1) == Approx(kDepth * kQuantized * 0.5625 + rest));
  // All that is not quantised, but for the adapters, in fp32.
  CHECK(weights("nf4:fp32-rest", 0, 1) - weights("nf4", 0, 1) ==
        Approx(2 * (kBothEnds + kDepth * kLayerNorms)));
  CHECK(weights("nf4:fp32-norms", 0, 1) == weights("nf4", 0, 1));
}

TEST_CASE("gathers of packed weights move a quarter of those of 16 bits") {
  const double rest = 2 * (kBothEnds + kDepth * (kLayerNorms + kAllAdapters));
  CHECK(PricedQuantized(nullptr).traffic().parameters.in(kByte) ==
        Approx(2 * kDepth * kQuantized + rest));
  CHECK(PricedQuantized("nf4").traffic().parameters.in(kByte) ==
        Approx(kDepth * kQuantized / 2 + rest));
  CHECK(PricedQuantized("nf4").traffic().gather < 0.4 * PricedQuantized(nullptr).traffic().gather);
  CHECK(PricedQuantized("nf4").traffic().gradients == PricedQuantized(nullptr).traffic().gradients);
}

TEST_CASE("ZeRO-3 with adapters holds two gathered layers and gradients of adapters alone") {
  const double gathered = 2 * (kLayerNorms + kAllAdapters);
  const double others = (2 + 4) * kAllAdapters + 2 * (kBothEnds - kWidth) + 2 * kWidth;
  const auto difference = [&](const char* quantized, double of_matrices) {
    const MemoryBreakdown all = PricedQuantized(quantized).memory();
    const MemoryBreakdown none = PricedQuantized(quantized, 0).memory();
    return (all.communication - none.communication).in(kByte) -
           (2 * (of_matrices + gathered) + others);
  };
  CHECK(difference(nullptr, 2 * kQuantized) == Approx(0).margin(1e6));
  CHECK(difference("nf4", kQuantized / 2) == Approx(0).margin(1e6));
}

TEST_CASE("weights are unpacked three times a step where layers are recomputed") {
  const PricedQuantized plain(nullptr, 0);
  const PricedQuantized packed("nf4", 0);
  const double bytes = 3 * kDepth * 2.5625 * kQuantized;
  const DeviceRates rates = device_rates(packed.cluster.gpu(), packed.calibration, Dtype::bf16);
  const double copied =
      2 * kDepth * kSample * 2 * 2 *
      (kQueryWidth + 2 * kKeyWidth + kWidth + 2 * kFfnWidth + kWidth);  // PEFT's clone
  const Seconds more = packed.costs.time.step - plain.costs.time.step;
  const Seconds expected = Bytes{bytes + copied} / rates.memory;
  CHECK(more > 0.9 * expected);
  CHECK(more < 1.3 * expected);
}

TEST_CASE("fp32 norms make the hidden states fp32, and each module casts them") {
  const OperatorList list = quantized_layer("nf4:fp32-norms");
  const OperatorList narrow = quantized_layer("nf4");
  const auto twice = [&](const char* name) {
    const Operator wide = quantized_operator(list, name);
    const Operator op = quantized_operator(narrow, name);
    return wide.forward_traffic == 2 * op.forward_traffic && wide.saved == 2 * op.saved;
  };
  CHECK(twice("input_norm"));
  CHECK(twice("activation"));
  CHECK(quantized_operator(list, "mlp_down").forward_traffic ==
        quantized_operator(narrow, "mlp_down").forward_traffic);
  // Queries, keys and values: each casts the input; the results go to fp32 and back.
  CHECK(quantized_operator(list, "adapter_cast").forward_traffic.in(kByte) ==
        Approx(6 * kSample * (3 * kWidth + 2 * (kQueryWidth + 2 * kKeyWidth))));
  const PricedQuantized wide("nf4:fp32-norms", 0);
  const PricedQuantized packed("nf4", 0);
  const auto input = [](const PricedQuantized& priced) {
    return priced.cost_model().sharding_costs(sharding_of(priced.plan)).layer_input;
  };
  CHECK(input(wide) == 2 * input(packed));
  CHECK(wide.costs.time.step > packed.costs.time.step);
}
