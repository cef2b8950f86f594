// The operators of gated short convolutions, of attention whose heads differ between layers, and of
// routed and shared experts with norms of their own, by hand arithmetic.
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

constexpr double kTokens = 8192;

OperatorList mixed_layer(const std::string& model, TokenMixer mixer,
                         LayerKind kind = LayerKind::dense) {
  TrainingJob job;
  job.sequence = 8192;
  job.global_batch = 8;
  return layer_operators(*load_model(model), job, *find_framework("deepspeed"), {.microbatch = 1},
                         kind, mixer);
}

Operator mixed_operator(const OperatorList& list, std::string_view name) {
  for (const Operator& op : list.view()) {
    if (op.name == name) return op;
  }
  FAIL("no operator " << std::string(name));
  return {};
}

}  // namespace

TEST_CASE("a short convolution keeps seven hidden states between its norm and its residual") {
  const OperatorList list = mixed_layer("lfm2-1.2b", TokenMixer::short_convolution);
  double kept = 0;
  for (const char* name : {"conv_in", "conv_gate", "short_conv", "conv_output", "conv_out"}) {
    kept += mixed_operator(list, name).saved.in(kByte);
  }
  // What autograd saves of Lfm2ShortConv (torch.autograd.graph.saved_tensors_hooks, transformers
  // 5.24), in hidden states: inputs of both projections, the projection's three parts, the
  // convolution's input and output.
  CHECK(kept == 7 * 2 * kTokens * 2048);
  const Operator in = mixed_operator(list, "conv_in");
  CHECK(in.m == kTokens);
  CHECK(in.k == 2048);
  CHECK(in.n == 3 * 2048);
  CHECK(mixed_operator(list, "short_conv").forward.in(kFlop) == 2 * 3 * kTokens * 2048);
  CHECK(mixed_operator(list, "conv_out").n == 2048);
}

TEST_CASE("global attention has the shapes of its own heads") {
  const OperatorList windowed = mixed_layer("gemma4-31b", TokenMixer::attention);
  const OperatorList global = mixed_layer("gemma4-31b", TokenMixer::global_attention);
  CHECK(mixed_operator(windowed, "qkv").n == 32 * 256 + 2 * 16 * 256);
  CHECK(mixed_operator(global, "qkv").n == 32 * 512 + 4 * 512);  // keys are values
  CHECK(mixed_operator(global, "projection").k == 32 * 512);
  // Causal: half of all keys, or the window of 1,024 less what its first tokens lack.
  const double window = 1024 * (1 - 1024 / (2 * kTokens));
  CHECK(mixed_operator(windowed, "attention").forward.in(kFlop) ==
        Approx(4 * kTokens * window * 32 * 256));
  CHECK(mixed_operator(global, "attention").forward.in(kFlop) ==
        Approx(4 * kTokens * kTokens / 2 * 32 * 512));
  // Kept: queries, keys and values for attention; before their norms, of which keys and values
  // share one input in global attention.
  const auto kept = [](const OperatorList& list, const char* name) {
    return mixed_operator(list, name).saved.in(kByte) / (2 * kTokens);
  };
  CHECK(kept(global, "attention_inputs") == 32 * 512 + 2 * 4 * 512);
  CHECK(kept(windowed, "qk_norm") + kept(windowed, "value_norm") == 32 * 256 + 2 * 16 * 256);
  CHECK(kept(global, "qk_norm") + kept(global, "value_norm") == 32 * 512 + 4 * 512);
}

TEST_CASE("routed and shared experts with norms of their own keep the inputs of these") {
  const OperatorList list = mixed_layer("gemma4-26b-a4b", TokenMixer::attention, LayerKind::moe);
  const double all = 2 * kTokens * 2816;
  // The router's result before its scale, the shared experts' input apart from the router's, both
  // outputs before their norms.
  CHECK(mixed_operator(list, "router_norm").saved.in(kByte) == all);
  CHECK(mixed_operator(list, "shared_up").saved.in(kByte) == all);
  CHECK(mixed_operator(list, "shared_output_norm").saved.in(kByte) == all);
  CHECK(mixed_operator(list, "routed_output_norm").saved.in(kByte) == all);
  CHECK(mixed_operator(list, "shared_up").n == 2 * 2112);
}

TEST_CASE("layers of several kinds cost their weighted mean, and their times are extrapolated") {
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  const Framework framework = find_framework("deepspeed").value();
  Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  calibration.evidence = Evidence::calibrated;
  TrainingJob job;
  job.sequence = 8192;
  job.global_batch = 8;
  for (const char* name : {"gemma4-31b", "lfm2-1.2b"}) {
    INFO(name);
    const ModelSpec model = *load_model(name);
    const CostModel costs(model, job, cluster, framework, calibration);
    const ShardingCosts sharding = costs.sharding_costs({.microbatch = 1});
    double saved = 0;
    double parameters = 0;
    for (const TokenMixer mixer : kTokenMixers) {
      const double share = static_cast<double>(model.layers_with(mixer)) / model.layers;
      if (share == 0) continue;
      saved += share * mixed_layer(name, mixer).saved(Recompute::none).in(kByte);
      parameters += share * layer_parameters_per_rank(model, 1, LayerKind::dense, mixer);
    }
    CHECK(sharding.dense.saved.in(kByte) == Approx(saved));
    CHECK(sharding.dense.parameters == Approx(parameters));
    CHECK(sharding.dense.parameters * model.layers ==
          Approx(static_cast<double>(model.parameters() - model.embedding_parameters() -
                                     model.head_parameters())));
    PlanCosts priced;
    priced.time.step = 1_s;
    ParallelPlan plan;
    plan.dp = 8;
    costs.price_throughput(plan, priced);
    CHECK(priced.evidence == Evidence::extrapolated);
  }
}
