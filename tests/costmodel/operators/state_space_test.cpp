// The operators of layers with a state space, of layers of one part, and of experts on a latent, by
// hand arithmetic.
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

ModelSpec nano() {
  const Result<ModelSpec> model = load_model("nemotron-3-nano-30b-a3b");
  REQUIRE(model.ok());
  return *model;
}

TrainingJob hybrid_job() {
  TrainingJob j;
  j.sequence = 8192;
  j.global_batch = 8;
  return j;
}

OperatorList hybrid_layer(const ModelSpec& model, TokenMixer mixer,
                          LayerSharding sharding = {.microbatch = 1}) {
  return layer_operators(model, hybrid_job(), *find_framework("megatron-core"), sharding,
                         LayerKind::moe, mixer);
}

Operator hybrid_operator(const OperatorList& list, std::string_view name) {
  for (const Operator& op : list.view()) {
    if (op.name == name) return op;
  }
  FAIL("no operator " << std::string(name));
  return {};
}

bool has_operator(const OperatorList& list, std::string_view name) {
  for (const Operator& op : list.view()) {
    if (op.name == name) return true;
  }
  return false;
}

double flops_of(const Operator& op) { return op.forward.in(kFlop); }

ShardingCosts hybrid_costs(const ModelSpec& model) {
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  const Framework framework = find_framework("megatron-core").value();
  const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  return CostModel(model, hybrid_job(), cluster, framework, calibration)
      .sharding_costs({.microbatch = 1});
}

}  // namespace

TEST_CASE("a state space's products have the shapes of its weights") {
  const OperatorList list = hybrid_layer(nano(), TokenMixer::state_space);
  const Operator in = hybrid_operator(list, "ssm_in");
  CHECK(in.m == 8192);
  CHECK(in.k == 2688);
  CHECK(in.n == 2 * 4096 + 2 * 8 * 128 + 64);  // gate, inputs; B, C; a step per head
  const Operator out = hybrid_operator(list, "ssm_out");
  CHECK(out.k == 4096);
  CHECK(out.n == 2688);
}

TEST_CASE("the chunked scan counts its products in chunks of 128 tokens") {
  // Per token: C·Bᵀ of 8 groups, 128 tokens of 128; its product with 4096 inputs; states and their
  // outputs, 128 each; the convolution over 4 tokens of 4096 + 2 · 1024 channels.
  constexpr double token = 2.0 * 128 * 8 * 128 + 2.0 * 128 * 4096 + 2 * 2.0 * 128 * 4096;
  constexpr double convolution = 2.0 * 4 * (4096 + 2 * 1024);
  const Operator scan = hybrid_operator(hybrid_layer(nano(), TokenMixer::state_space), "ssm_scan");
  CHECK(flops_of(scan) == Approx(8192 * (token + convolution)));
  // Backward: every product twice, states and C·Bᵀ again, the convolution three times.
  constexpr double again = 2.0 * 128 * 4096 + 2.0 * 128 * 8 * 128;
  CHECK(scan.backward.in(kFlop) == Approx(8192 * (2 * token + again + 3 * convolution)));
  // What the autograd function keeps: projections and the output before its gate.
  CHECK(scan.saved.in(kByte) == Approx(2.0 * 8192 * (2 * 4096 + 2 * 1024 + 64 + 4096)));
}

// Source: Megatron-LM d98e8a64, megatron/core/ssm/mamba_context_parallel.py.
TEST_CASE("context parallelism of a state space exchanges tokens for heads, and copies groups") {
  const auto exchanged = [](int cp) {
    const OperatorList list =
        hybrid_layer(nano(), TokenMixer::state_space, {.cp = cp, .microbatch = 1});
    double scattered = 0;
    int calls = 0;
    for (const Operator& op : list.view()) {
      if (op.name != "cp_scatter_heads") continue;
      scattered += op.payload.in(kByte);
      ++calls;
    }
    CHECK(calls == 5);  // gate, inputs, B, C, steps
    CHECK(hybrid_operator(list, "cp_gather_heads").payload.in(kByte) ==
          Approx(2.0 * 8192 / cp * 4096));
    return scattered;
  };
  // 8 groups: at cp 16 every one is on two ranks.
  CHECK(exchanged(4) == Approx(2.0 * 2048 * (2 * 4096 + 2 * 8 * 128 + 64)));
  CHECK(exchanged(16) == Approx(2.0 * 512 * (2 * 4096 + 2 * 16 * 128 + 64)));
  const auto scan = [](int cp) {
    return hybrid_operator(
        hybrid_layer(nano(), TokenMixer::state_space, {.cp = cp, .microbatch = 1}), "ssm_scan");
  };
  CHECK(flops_of(scan(4)) * 4 == Approx(flops_of(scan(1))));
  // C·Bᵀ of each of the 8 groups is computed on two ranks.
  CHECK(flops_of(scan(16)) * 16 - flops_of(scan(1)) ==
        Approx(8192 * (2.0 * 128 * 8 * 128 + 2.0 * 4 * 2 * 1024)));
  CHECK(scan(16).saved.in(kByte) == Approx(2.0 * 512 * (3 * 4096 + 2 * 16 * 128 + 64)));
}

TEST_CASE("attention and a state space side by side are both of a layer's operators") {
  ModelSpec model = *load_model("llama3-8b");
  model.ssm = {.layers = 32,
               .heads = 128,
               .head_dim = 8,
               .groups = 1,
               .state_dim = 256,
               .conv_kernel = 4,
               .gated_norm = false,
               .beside_attention = true};
  const auto layer = [&](const ModelSpec& m, TokenMixer mixer) {
    return layer_operators(m, hybrid_job(), *find_framework("deepspeed"), {.microbatch = 1},
                           LayerKind::dense, mixer);
  };
  const OperatorList both = layer(model, TokenMixer::side_by_side);
  for (const char* name :
       {"qkv", "attention", "projection", "ssm_in", "ssm_scan", "ssm_out", "mixer_sum", "mlp_up"}) {
    INFO(name);
    CHECK(has_operator(both, name));
  }
  CHECK_FALSE(has_operator(both, "ssm_norm"));
  CHECK(hybrid_operator(both, "ssm_scan").forward.in(kFlop) ==
        Approx(8192.0 *
               (2 * 128 * 256 + 2 * 128 * 1024 + 4 * 256 * 1024 + 2 * 4 * (1024 + 2 * 256))));
  ModelSpec alone = model;
  alone.ssm = {};
  CHECK(hybrid_operator(both, "attention").forward ==
        hybrid_operator(layer(alone, TokenMixer::attention), "attention").forward);
  // A layer's parameters: those of attention and of the state space.
  CHECK(layer_parameters_per_rank(model, 1, LayerKind::dense, TokenMixer::side_by_side) ==
        Approx(layer_parameters_per_rank(alone, 1) + 4096.0 * (1024 + 512 + 1024 + 128) +
               1024.0 * 4096 + 5 * (1024 + 512) + 3 * 128));
}

TEST_CASE("tensor parallelism splits a state space by groups of heads") {
  const ModelSpec model = nano();
  const OperatorList whole = hybrid_layer(model, TokenMixer::state_space);
  const OperatorList half =
      hybrid_layer(model, TokenMixer::state_space, {.tp = 2, .microbatch = 1});
  for (const char* name : {"ssm_in", "ssm_scan", "ssm_out"}) {
    INFO(name);
    CHECK(flops_of(hybrid_operator(half, name)) ==
          Approx(flops_of(hybrid_operator(whole, name)) / 2));
  }
  CHECK(hybrid_operator(half, "ssm_reduce").payload.in(kByte) == Approx(2.0 * 8192 * 2688));
  // Every rank holds one norm; the rest, the gain of the gated norm included, is split.
  const auto per_rank = [&](int tp) {
    return layer_parameters_per_rank(model, tp, LayerKind::moe, TokenMixer::state_space);
  };
  CHECK(per_rank(2) == Approx((per_rank(1) - 2688) / 2 + 2688));
}

TEST_CASE("layers of one part have a mixer or an MLP, with one norm each") {
  const OperatorList mixer = hybrid_layer(nano(), TokenMixer::state_space);
  const OperatorList attention = hybrid_layer(nano(), TokenMixer::attention);
  const OperatorList experts = hybrid_layer(nano(), TokenMixer::none);
  for (const OperatorList& list : {mixer, attention}) {
    CHECK(has_operator(list, "input_norm"));
    CHECK_FALSE(has_operator(list, "post_attention_norm"));
    CHECK_FALSE(has_operator(list, "expert_up"));
  }
  CHECK(has_operator(attention, "attention"));
  CHECK_FALSE(has_operator(mixer, "attention"));
  CHECK(has_operator(experts, "expert_up"));
  CHECK(has_operator(experts, "shared_up"));
  CHECK(has_operator(experts, "post_attention_norm"));
  CHECK_FALSE(has_operator(experts, "input_norm"));
  CHECK_FALSE(has_operator(experts, "qkv"));
}

TEST_CASE("all layers together hold the parameters of a hybrid model") {
  for (const char* name : {"nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b",
                           "granite-4.0-h-small", "nemotron-h-8b"}) {
    INFO(name);
    const ModelSpec model = *load_model(name);
    const ShardingCosts costs = hybrid_costs(model);
    const LayerCosts& layer = costs.of(model.layer_kind(0));
    CHECK(model.layers * (layer.parameters + layer.experts) ==
          Approx(static_cast<double>(model.parameters() - model.embedding_parameters() -
                                     model.head_parameters())));
  }
}

TEST_CASE("recomputed modules free and repeat what the layers that have them hold") {
  // Attention is in 6 of 52 layers: as much as if these alone were recomputed.
  const ModelSpec model = nano();
  const LayerCosts mean = hybrid_costs(model).moe;
  ModelSpec plain = model;
  plain.ssm = {};
  plain.mlp_only_layers = 0;  // attention and experts in every layer
  const LayerCosts all = hybrid_costs(plain).moe;
  const auto freed = [&](const LayerCosts& layer, RecomputeModule module) {
    for (std::size_t i = 0; i < kRecomputeModules.size(); ++i) {
      if (kRecomputeModules[i] == module) return layer.modules[i].freed;
    }
    FAIL("no such module");
    return Bytes{};
  };
  CHECK(freed(mean, RecomputeModule::core_attn) / freed(all, RecomputeModule::core_attn) ==
        Approx(6.0 / 52));
  CHECK(freed(mean, RecomputeModule::moe_act) / freed(all, RecomputeModule::moe_act) ==
        Approx(23.0 / 52));
  // The same of gated delta nets, in 36 of 48 layers.
  const ModelSpec next = *load_model("qwen3-next-80b-a3b");
  ModelSpec attended = next;
  attended.delta = {};
  CHECK(freed(hybrid_costs(next).moe, RecomputeModule::core_attn) /
            freed(hybrid_costs(attended).moe, RecomputeModule::core_attn) ==
        Approx(12.0 / 48));
}

TEST_CASE("a buffer for a recomputed layer holds the largest layer, not the mean") {
  const LayerCosts mean = hybrid_costs(nano()).moe;
  const Framework megatron = find_framework("megatron-core").value();
  REQUIRE(mean.of_mixers.size() == 3);
  Bytes sum;
  Bytes most;
  for (const LayerCosts::OfMixer& each : mean.of_mixers) most = std::max(most, each.saved);
  for (const auto& [mixer, layers] : {std::pair{TokenMixer::attention, 6},
                                      {TokenMixer::state_space, 23},
                                      {TokenMixer::none, 23}}) {
    sum += layers / 52.0 * hybrid_layer(nano(), mixer).saved(Recompute::none);
  }
  CHECK(mean.saved / sum == Approx(1));
  CHECK(most / hybrid_layer(nano(), TokenMixer::none).saved(Recompute::none) == Approx(1));
  // Of 52 layers 23 have experts, all of which one layer recomputes.
  const RecomputeModules moe{RecomputeModule::moe};
  CHECK(most_freed(mean, megatron, moe) / selective_part(mean, megatron, moe).freed ==
        Approx(52.0 / 23));
  const LayerCosts alike = hybrid_costs(*load_model("mixtral-8x7b")).moe;
  CHECK(most_freed(alike, megatron, moe) == selective_part(alike, megatron, moe).freed);
}

TEST_CASE("layers of one part take half of a layer's launches, and experts those that have them") {
  const LayerCosts mean = hybrid_costs(nano()).moe;
  CHECK(mean.launches == Approx(0.5));
  CHECK(mean.with_experts == Approx(23.0 / 52));
  const LayerCosts granite = hybrid_costs(*load_model("granite-4.0-h-small")).moe;
  CHECK(granite.launches == Approx(1));
  CHECK(granite.with_experts == Approx(1));
}

TEST_CASE("experts on a latent compute and send its width") {
  const ModelSpec super = *load_model("nemotron-3-super-120b-a12b");
  const OperatorList list = hybrid_layer(super, TokenMixer::none, {.microbatch = 1, .ep = 8});
  const Operator down = hybrid_operator(list, "latent_down");
  CHECK(down.m == 8192);
  CHECK(down.saved == Bytes{});  // what the router keeps
  CHECK(down.k == 4096);
  CHECK(down.n == 1024);
  CHECK(hybrid_operator(list, "latent_up").n == 4096);
  CHECK(hybrid_operator(list, "expert_up").k == 1024);
  CHECK(hybrid_operator(list, "expert_down").n == 1024);
  CHECK(hybrid_operator(list, "router").k == 4096);
  CHECK(hybrid_operator(list, "shared_up").k == 4096);
  CHECK(hybrid_operator(list, "dispatch").payload.in(kByte) == Approx(2.0 * 8192 * 22 * 1024));
}

TEST_CASE("times of a model with state spaces are extrapolated, whatever the calibration") {
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  const Framework framework = find_framework("megatron-core").value();
  Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  calibration.evidence = Evidence::calibrated;
  PlanCosts costs;
  costs.time.step = 1_s;
  ParallelPlan plan;
  plan.dp = 8;
  CostModel(nano(), hybrid_job(), cluster, framework, calibration).price_throughput(plan, costs);
  CHECK(costs.evidence == Evidence::extrapolated);
}

TEST_CASE("a prediction module of layers of one part has attention and an MLP") {
  ModelSpec model = nano();
  const ShardingCosts without = hybrid_costs(model);
  model.prediction_modules = 1;
  const ShardingCosts with = hybrid_costs(model);
  const double h = model.hidden;
  const double module =
      static_cast<double>(model.layer_parameters(LayerKind::moe, TokenMixer::attention).total() +
                          model.layer_parameters(LayerKind::moe, TokenMixer::none).total()) +
      2 * h * h + 3 * h;
  CHECK(with.head_parameters - without.head_parameters + with.head_experts == Approx(module));
}
