// The operators of a layer with a gated delta net, by hand arithmetic.
#include <string>
#include <string_view>

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/operators/operators.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ModelSpec delta_model() {
  const Result<ModelSpec> model = load_model("qwen3-next-80b-a3b");
  REQUIRE(model.ok());
  return *model;
}

TrainingJob delta_job() {
  TrainingJob j;
  j.sequence = 4096;
  j.global_batch = 8;
  return j;
}

OperatorList delta_layer(LayerSharding sharding = {.microbatch = 1}, int sequence = 4096) {
  TrainingJob j = delta_job();
  j.sequence = sequence;
  return layer_operators(delta_model(), j, *find_framework("megatron-core"), sharding,
                         LayerKind::moe, TokenMixer::delta_net);
}

Operator delta_operator(const OperatorList& list, std::string_view name) {
  for (const Operator& op : list.view()) {
    if (op.name == name) return op;
  }
  FAIL("no operator " << std::string(name));
  return {};
}

double forward_flops(const Operator& op) { return op.forward.in(kFlop); }

}  // namespace

TEST_CASE("a delta net's products have the shapes of its weights") {
  const OperatorList list = delta_layer();
  const Operator in = delta_operator(list, "delta_in");
  CHECK(in.m == 4096);
  CHECK(in.k == 2048);
  CHECK(in.n == 2 * 2048 + 2 * 4096 + 2 * 32);  // queries, keys; values, gate; two per head
  const Operator out = delta_operator(list, "delta_out");
  CHECK(out.k == 4096);
  CHECK(out.n == 2048);
  for (const Operator& op : list.view()) {
    INFO(std::string(op.name));
    CHECK(op.name != "attention");
    CHECK(op.name != "qkv");
  }
}

TEST_CASE("the chunked recurrence counts its products in chunks of 64 tokens") {
  // Per token and head with d_k = d_v = 128: five products of 64 × 128 (k·kᵀ, T·k, T·v, q·kᵀ and
  // its product with v), three with the 128 × 128 state, the inverse of 64 × 64.
  constexpr double head = 2 * 5 * 64 * 128 + 2 * 3 * 128 * 128 + 2.0 / 3 * 64 * 64;
  const Operator rule = delta_operator(delta_layer(), "delta_rule");
  CHECK(forward_flops(rule) == Approx(4096.0 * 32 * head));
  // Backward: twice, and T·k, T·v, k·S and the state's update again.
  constexpr double again = 2 * 2 * 64 * 128 + 2 * 2 * 128 * 128;
  CHECK(rule.backward.in(kFlop) == Approx(4096.0 * 32 * (2 * head + again)));
  // Linear in the sequence, unlike attention.
  CHECK(forward_flops(delta_operator(delta_layer({.microbatch = 1}, 8192), "delta_rule")) ==
        Approx(2 * forward_flops(rule)));
}

TEST_CASE("the convolution spans four tokens in every channel") {
  const Operator conv = delta_operator(delta_layer(), "delta_conv");
  CHECK(forward_flops(conv) == Approx(2.0 * 4 * 4096 * 8192));
  CHECK(conv.saved.in(kByte) == Approx(2.0 * 4096 * 8192));
}

TEST_CASE("a delta net keeps what its kernels keep") {
  // FLA saves q and k in every value head, v, the 64 × 64 inverses as 64 numbers per token, and
  // four 32-bit numbers per token and head: decay, write strength, two norms.
  const Operator rule = delta_operator(delta_layer(), "delta_rule");
  CHECK(rule.saved.in(kByte) == Approx(4096.0 * 32 * (2 * (3 * 128 + 64) + 4 * 4)));
  // While it runs backward: a 128 × 128 state per chunk and head, and two of 128 per token.
  CHECK(rule.transient.in(kByte) == Approx(2.0 * 32 * (4096.0 / 64 * 128 * 128 + 4096 * 256)));
}

TEST_CASE("tensor parallelism splits a delta net by heads") {
  const OperatorList whole = delta_layer();
  const OperatorList half = delta_layer({.tp = 2, .microbatch = 1});
  for (const char* name : {"delta_in", "delta_conv", "delta_rule", "delta_out"}) {
    INFO(name);
    CHECK(forward_flops(delta_operator(half, name)) ==
          Approx(forward_flops(delta_operator(whole, name)) / 2));
  }
  CHECK(delta_operator(half, "delta_reduce").payload.in(kByte) == Approx(2.0 * 4096 * 2048));
  const ModelSpec model = delta_model();
  const auto per_rank = [&](int tp) {
    return layer_parameters_per_rank(model, tp, LayerKind::moe, TokenMixer::delta_net);
  };
  // What every rank holds: router, its gate, two norms of 2048, the gain of the gated norm.
  const double everywhere = 2048.0 * 513 + 2 * 2048 + 128;
  CHECK(per_rank(2) == Approx((per_rank(1) - everywhere) / 2 + everywhere));
}

TEST_CASE("Kimi delta attention projects both gates, and decays every channel of a key") {
  ModelSpec model = delta_model();
  model.delta.gate_rank = 128;
  TrainingJob j = delta_job();
  const OperatorList list =
      layer_operators(model, j, *find_framework("deepspeed"), {.microbatch = 1}, LayerKind::moe,
                      TokenMixer::delta_net);
  // Queries, keys and values, a write strength per head, the vectors of both gates.
  CHECK(delta_operator(list, "delta_in").n == 2 * 2048 + 4096 + 32 + 2 * 128);
  const Operator gates = delta_operator(list, "delta_gates");
  CHECK(gates.k == 128);
  CHECK(gates.n == 32 * 128 + 4096);
  CHECK(gates.saved.in(kByte) == Approx(2.0 * 4096 * 2 * 128));
  // The exponential, one more, a mask and the result of every decay.
  CHECK(delta_operator(list, "delta_decay").saved.in(kByte) == Approx(13.0 * 4096 * 32 * 128));
  const Operator plain = delta_operator(delta_layer(), "delta_rule");
  const Operator rule = delta_operator(list, "delta_rule");
  CHECK(rule.forward == plain.forward);
  CHECK(rule.backward == plain.backward);
  // Decays and their sums in fp32, and a second product inside a chunk.
  CHECK((rule.saved - plain.saved).in(kByte) == Approx(4096.0 * 32 * (8 * 128 + 2 * 64)));
  CHECK((rule.forward_traffic - plain.forward_traffic).in(kByte) == Approx(4096.0 * 32 * 24 * 128));
  // At the end of chunk_kda_bwd: w, qg and kg, u, v_new and dv, h and dh in 16 bits; fp32 dq, dk,
  // dg twice; fp32 dAqk and dAkk.
  CHECK(rule.transient.in(kByte) ==
        Approx(4096.0 * 32 *
               (2 * (3 * 128 + 3 * 128 + 2 * 128 * 128 / 64) + 6 * 4 * 128 + 2 * 4 * 64)));
}

TEST_CASE("a layer of a model with both mixers is their weighted mean") {
  const auto costs_with = [](int delta_layers) {
    ModelSpec model = delta_model();
    model.delta.layers = delta_layers;
    const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
    const Framework framework = find_framework("megatron-core").value();
    const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
    return CostModel(model, delta_job(), cluster, framework, calibration)
        .sharding_costs({.microbatch = 1});
  };
  // Linear in the number of delta nets: 24 of 48 layers lie between 12 and 36.
  const LayerCosts few = costs_with(12).moe, half = costs_with(24).moe, most = costs_with(36).moe;
  CHECK((few.forward.device + most.forward.device) / half.forward.device == Approx(2));
  CHECK((few.backward.device + most.backward.device) / half.backward.device == Approx(2));
  CHECK((few.saved + most.saved) / half.saved == Approx(2));
  CHECK(few.parameters + most.parameters == Approx(2 * half.parameters));
  CHECK(few.forward.device != most.forward.device);
  CHECK(few.saved != most.saved);
  // All layers together hold the model's parameters.
  const ShardingCosts costs = costs_with(36);
  const ModelSpec model = delta_model();
  CHECK(48 * (costs.moe.parameters + costs.moe.experts) ==
        Approx(static_cast<double>(model.parameters() - model.embedding_parameters() -
                                   model.head_parameters())));
}

TEST_CASE("times of a model with delta nets are extrapolated, whatever the calibration") {
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  const Framework framework = find_framework("megatron-core").value();
  Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  calibration.evidence = Evidence::calibrated;
  PlanCosts costs;
  costs.time.step = 1_s;
  ParallelPlan plan;
  plan.dp = 8;
  CostModel(delta_model(), delta_job(), cluster, framework, calibration)
      .price_throughput(plan, costs);
  CHECK(costs.evidence == Evidence::extrapolated);
  CostModel(*load_model("7b"), delta_job(), cluster, framework, calibration)
      .price_throughput(plan, costs);
  CHECK(costs.evidence == Evidence::calibrated);
}

TEST_CASE("an output gate widens the projection and multiplies attention's output") {
  const ModelSpec model = delta_model();
  ModelSpec plain = model;
  plain.attention_output_gate = false;
  const auto layer = [&](const ModelSpec& m) {
    return layer_operators(m, delta_job(), *find_framework("megatron-core"), {.microbatch = 1},
                           LayerKind::moe);
  };
  CHECK(delta_operator(layer(model), "qkv").n == delta_operator(layer(plain), "qkv").n + 4096);
  CHECK(delta_operator(layer(model), "attention_gate").saved.in(kByte) ==
        Approx(2 * 2.0 * 4096 * 4096));
}

TEST_CASE("a norm over all heads adds up squares over the tensor-parallel ranks") {
  const ModelSpec model = *load_model("minimax-m2");
  const auto layer = [&](int tp) {
    return layer_operators(model, delta_job(), *find_framework("megatron-core"),
                           {.tp = tp, .microbatch = 1}, LayerKind::moe);
  };
  const Operator reduce = delta_operator(layer(4), "qk_norm_reduce");
  CHECK(reduce.payload.in(kByte) == Approx(2 * 4.0 * 4096));  // one of q, one of k, in fp32
  CHECK(reduce.axis == Axis::tp);
  for (const Operator& op : layer(1).view()) CHECK(op.name != "qk_norm_reduce");
}

// Source: Megatron-LM d98e8a64, megatron/core/ssm/gated_delta_net/common.py.
TEST_CASE("context parallelism of a delta net exchanges tokens for heads and back") {
  const OperatorList whole = delta_layer();
  const OperatorList split = delta_layer({.cp = 4, .microbatch = 1});
  constexpr double rows = 1024;  // 4096 / 4
  constexpr double projected = 2 * rows * (2 * 2048 + 2 * 4096 + 2 * 32);
  constexpr double output = 2 * rows * 4096;
  const Operator scatter = delta_operator(split, "cp_scatter_heads");
  CHECK(scatter.axis == Axis::cp);
  CHECK(scatter.forward_collective == CollectiveKind::all_to_all);
  CHECK(scatter.backward_collective == CollectiveKind::all_to_all);
  CHECK(scatter.payload.in(kByte) == projected);
  CHECK(delta_operator(split, "cp_gather_heads").payload.in(kByte) == output);
  double copied = 0;
  for (const Operator& op : split.view()) {
    const bool copy =
        op.name == "cp_order_heads" || op.name == "cp_split_heads" || op.name == "cp_order_tokens";
    if (copy) copied += op.forward_traffic.in(kByte);
  }
  CHECK(copied == Approx(2 * 3 * projected + 2 * 2 * output));
  // Each rank runs the whole sequence of a quarter of the heads.
  const Operator rule = delta_operator(split, "delta_rule");
  CHECK(forward_flops(rule) * 4 == Approx(forward_flops(delta_operator(whole, "delta_rule"))));
  CHECK(rule.span == 4096);
  CHECK(split.saved(Recompute::none).in(kByte)*4 == Approx(whole.saved(Recompute::none).in(kByte)));
  for (const Operator& op : whole.view()) CHECK(op.axis != Axis::cp);
}
