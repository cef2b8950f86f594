// The operators of a layer with sparse attention (DSA), by hand arithmetic for DeepSeek-V3.2.
#include <algorithm>
#include <string>
#include <string_view>

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/operators/operators.hpp"
#include "costmodel/time/operator_times.hpp"
#include "costmodel/time/stage_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

constexpr double kIndexedTokens = 8192;
/// Keys of a query of 8192 with top-k 2048: the first 2048 see half of that, the others all of it.
constexpr double kChosenKeys = 2048 * (1 - 2048 / (2 * kIndexedTokens));
constexpr double kAbsorbedKey = 512 + 64;
constexpr double kLatentValue = 512;

ModelSpec indexed_model() { return load_model("deepseek-v3.2").value(); }

TrainingJob indexed_job(int sequence = 8192, std::string_view precision = "bf16",
                        const char* documents = "") {
  TrainingJob j;
  j.sequence = sequence;
  j.global_batch = 8;
  j.precision = find_precision(precision).value();
  if (documents[0] != '\0') j.documents = parse_document_lengths(documents, "test").value();
  return j;
}

OperatorList indexed_layer(LayerSharding sharding = {.microbatch = 1},
                           const ModelSpec& model = indexed_model(), int sequence = 8192,
                           std::string_view precision = "bf16", const char* documents = "") {
  const TrainingJob j = indexed_job(sequence, precision, documents);
  return layer_operators(model, j, *find_framework("megatron-core"), sharding, LayerKind::dense);
}

Operator indexed_part(const OperatorList& list, std::string_view name) {
  for (const Operator& op : list.view()) {
    if (op.name == name) return op;
  }
  FAIL("no operator " << std::string(name));
  return {};
}

bool has_indexed_part(const OperatorList& list, std::string_view name) {
  return std::ranges::any_of(list.view(), [&](const Operator& op) { return op.name == name; });
}

double indexed_flops(const Operator& op) { return op.forward.in(kFlop); }

/// Costs of a dense layer.
LayerCosts indexed_costs(const ModelSpec& model, std::string_view precision = "bf16",
                         LayerSharding sharding = {.microbatch = 1}) {
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  const Framework framework = find_framework("megatron-core").value();
  const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  return CostModel(model, indexed_job(8192, precision), cluster, framework, calibration)
      .sharding_costs(sharding)
      .dense;
}

}  // namespace

TEST_CASE("the core attends to the chosen keys alone, on the latent") {
  const Operator core = indexed_part(indexed_layer(), "sparse_attention");
  CHECK(indexed_flops(core) ==
        Approx(2 * kIndexedTokens * kChosenKeys * 128 * (kAbsorbedKey + kLatentValue)));
  // Backward: scores again, gradients of queries and keys; of probabilities and values.
  CHECK(core.backward.in(kFlop) ==
        Approx(2 * kIndexedTokens * kChosenKeys * 128 * (3 * kAbsorbedKey + 2 * kLatentValue)));
  // Linear in the sequence once it is longer than the top-k.
  const auto core_of = [](int sequence) {
    return indexed_flops(indexed_part(indexed_layer({.microbatch = 1}, indexed_model(), sequence),
                                      "sparse_attention"));
  };
  CHECK((core_of(65'536) - core_of(32'768)) / 32'768 ==
        Approx(2 * 2048 * 128 * (kAbsorbedKey + kLatentValue)));
  CHECK_FALSE(has_indexed_part(indexed_layer(), "attention"));
}

TEST_CASE("a short sequence attends to all keys before a query") {
  CHECK(indexed_flops(indexed_part(indexed_layer({.microbatch = 1}, indexed_model(), 1024),
                                   "sparse_attention")) ==
        Approx(2 * 1024.0 * 512 * 128 * (kAbsorbedKey + kLatentValue)));
}

TEST_CASE("the indexer scores all keys before a query with all of its heads on every rank") {
  for (const int tp : {1, 8}) {
    const OperatorList list =
        indexed_layer({.tp = tp, .microbatch = 1, .sequence_parallel = tp > 1});
    const Operator scores = indexed_part(list, "index_scores");
    CHECK(indexed_flops(scores) == Approx(2 * kIndexedTokens * (kIndexedTokens / 2) * 64 * 128));
    CHECK(scores.backward.in(kFlop) == 0);
    CHECK(scores.saved.in(kByte) == 0);
    // fp32 scores of all rows, and two 32-bit numbers of scratch for each of them.
    CHECK(scores.transient.in(kByte) == Approx(12 * kIndexedTokens * kIndexedTokens));
    CHECK(indexed_part(list, "index_queries").n == 64 * 128);
    CHECK(indexed_part(list, "index_queries").m == kIndexedTokens);
  }
}

TEST_CASE("scores of packed documents have a row as long as the longest document") {
  const LayerSharding half{.cp = 2, .cp_comm = CpComm::all_gather, .microbatch = 1};
  const auto scratch = [&](int sequence, const char* documents) {
    return indexed_part(indexed_layer(half, indexed_model(), sequence, "bf16", documents),
                        "index_scores")
        .transient.in(kByte);
  };
  CHECK(scratch(8192, "1024x4,2048x2") == Approx(12 * 4096.0 * 2048));
  // A longer document is cut; the top-k kernel's scratch is at most 2 GiB.
  constexpr double kScratch = 2.0 * 1024 * 1024 * 1024;
  CHECK(scratch(65'536, "131072") == Approx(4 * 32'768.0 * 65'536 + kScratch));
}

TEST_CASE("nothing flows back from the indexer into the hidden state") {
  for (const char* name : {"index_queries", "index_key", "index_weights"}) {
    const Operator op = indexed_part(indexed_layer(), name);
    INFO(name);
    CHECK(op.backward.in(kFlop) == Approx(indexed_flops(op)));  // of the weights alone
    CHECK_FALSE(op.input_gradient);
  }
  const Operator gather = indexed_part(
      indexed_layer({.tp = 8, .microbatch = 1, .sequence_parallel = true}), "index_gather");
  CHECK(gather.payload.in(kByte) == Approx(2 * kIndexedTokens * (7168 + 1536)));
  CHECK(gather.forward_collective == CollectiveKind::all_gather);
  CHECK(gather.backward_collective == CollectiveKind::none);
}

TEST_CASE("the indexer learns from attention's probabilities over the chosen keys") {
  const OperatorList list = indexed_layer();
  CHECK(indexed_flops(indexed_part(list, "index_target")) ==
        Approx(2 * kIndexedTokens * kChosenKeys * 128 * kAbsorbedKey));
  // Its gradients of all top-k slots, also in rows that fewer keys precede.
  CHECK(indexed_flops(indexed_part(list, "index_gradients")) ==
        Approx(6 * kIndexedTokens * 2048 * 64 * 128));
  ModelSpec uneven = indexed_model();
  uneven.dsa.topk = 1000;
  CHECK(indexed_flops(indexed_part(indexed_layer({.microbatch = 1}, uneven), "index_gradients")) ==
        Approx(6 * kIndexedTokens * 1024 * 64 * 128));
  CHECK_FALSE(has_indexed_part(list, "index_target_reduce"));
  const Operator sum = indexed_part(
      indexed_layer({.tp = 8, .microbatch = 1, .sequence_parallel = true}), "index_target_reduce");
  CHECK(sum.payload.in(kByte) == Approx(4 * kIndexedTokens * 2048));
  // GLM-5's 32 index heads run as 64 in the kernel of their gradients.
  const OperatorList glm = indexed_layer({.microbatch = 1}, load_model("glm-5").value());
  CHECK(indexed_flops(indexed_part(glm, "index_gradients")) ==
        indexed_flops(indexed_part(list, "index_gradients")));
  CHECK(indexed_flops(indexed_part(glm, "index_scores")) ==
        Approx(indexed_flops(indexed_part(list, "index_scores")) / 2));
}

TEST_CASE("fewer than 64 heads on a rank cost the kernels as much as 64") {
  const auto core = [](int tp) {
    return indexed_flops(
        indexed_part(indexed_layer({.tp = tp, .microbatch = 1, .sequence_parallel = tp > 1}),
                     "sparse_attention"));
  };
  CHECK(core(2) == Approx(core(1) / 2));
  CHECK(core(8) == Approx(core(2)));
  // What the backward reads of 64 heads stays, though 16 of them are the rank's.
  const OperatorList split = indexed_layer({.tp = 8, .microbatch = 1, .sequence_parallel = true});
  CHECK(indexed_part(split, "sparse_attention").saved.in(kByte) ==
        Approx(kIndexedTokens * 64 * (2 * kLatentValue + 4) + 4 * kIndexedTokens * 2048));
}

TEST_CASE("the backward of sparse attention copies what it reads, but for packed documents") {
  const auto transient = [](LayerSharding sharding, const char* documents) {
    const OperatorList list = indexed_layer(sharding, indexed_model(), 8192, "bf16", documents);
    return indexed_part(list, "sparse_attention").transient.in(kByte);
  };
  const double queries = 2 * kIndexedTokens * 128 * kAbsorbedKey;
  const double output = 2 * kIndexedTokens * 128 * kLatentValue;
  const double keys = 4 * kIndexedTokens * kAbsorbedKey;
  const double numbers = 4 * kIndexedTokens * 2048;
  // torch.cat and index_select of queries, output, its gradient and the keys' numbers; gradients.
  CHECK(transient({.microbatch = 1}, "") ==
        Approx(2 * (queries + 2 * output + numbers) + output + queries + keys));
  const LayerSharding context{.cp = 2, .cp_comm = CpComm::all_gather, .microbatch = 1};
  CHECK(transient(context, "1024") == Approx(queries / 2 + output / 2 + keys));
  const OperatorList whole = indexed_layer();
  CHECK(indexed_part(whole, "sparse_attention").backward_traffic.in(kByte) ==
        Approx(2 * queries + 2 * output + 6 * 2 * kIndexedTokens * kAbsorbedKey + numbers +
               4 * (queries + 2 * output + numbers) + 3 * queries));
  // 16 heads of a rank as 64.
  const LayerSharding split{.tp = 8, .microbatch = 1, .sequence_parallel = true};
  CHECK(transient(split, "") > (2 * (queries + 2 * output) + queries) / 2);
}

TEST_CASE("sparse attention keeps what its kernels keep") {
  const OperatorList list = indexed_layer();
  const auto saved = [&](const char* name) { return indexed_part(list, name).saved.in(kByte); };
  // Absorbed queries, and one key for all heads.
  CHECK(saved("attention_inputs") == Approx(2 * kIndexedTokens * 128 * kAbsorbedKey));
  CHECK(saved("attention_keys") == Approx(2 * kIndexedTokens * kAbsorbedKey));
  // Output on the latent, log-sum-exp, the chosen keys' numbers.
  CHECK(saved("sparse_attention") == Approx(2 * kIndexedTokens * 128 * kLatentValue +
                                            4 * kIndexedTokens * 128 + 4 * kIndexedTokens * 2048));
  // Gradients of the indexer's queries, key and weights, which the forward makes.
  CHECK(saved("index_gradients") == Approx(2 * kIndexedTokens * (64 * 128 + 128 + 64)));
  // Queries before their absorption; attention's output before its projection.
  CHECK(saved("key_absorb") == Approx(2 * kIndexedTokens * 128 * 192));
  CHECK(saved("projection") == Approx(2 * kIndexedTokens * 128 * 128));
  // A contiguous copy of the values' up projection.
  CHECK(saved("value_up") == Approx(2.0 * 128 * 128 * kLatentValue));
  // The inputs of the indexer's projections are those of others, unless they are gathered.
  CHECK(saved("index_key") == 0);
  const OperatorList split = indexed_layer({.tp = 8, .microbatch = 1, .sequence_parallel = true});
  CHECK(indexed_part(split, "index_key").saved.in(kByte) == Approx(2 * kIndexedTokens * 7168));
  CHECK(indexed_part(split, "index_queries").saved.in(kByte) == Approx(2 * kIndexedTokens * 1536));
  CHECK(indexed_part(split, "index_weights").saved.in(kByte) == 0);
}

TEST_CASE("recomputed attention drops what it keeps and repeats the indexer") {
  const OperatorList list = indexed_layer();
  using enum RecomputeModule;
  for (const char* name : {"index_queries", "index_key", "index_rope", "index_weights",
                           "index_scores", "index_topk", "sparse_attention", "value_up"}) {
    INFO(name);
    CHECK(indexed_part(list, name).repeated_by.contains(core_attn));
    CHECK(indexed_part(list, name).freed_by.contains(core_attn));
  }
  // The loss runs in the repetition alone.
  for (const char* name : {"index_target", "index_loss", "index_gradients"}) {
    INFO(name);
    CHECK(indexed_part(list, name).repeated_by.empty());
    CHECK(indexed_part(list, name).freed_by.contains(core_attn));
    CHECK(indexed_part(list, name).repeated == 0);
  }
  CHECK_FALSE(indexed_part(list, "attention_inputs").freed_by.contains(core_attn));
  // The up projection: absorbed queries go; its inputs and the one key stay.
  CHECK(indexed_part(list, "attention_inputs").freed_by.contains(mla_up_proj));
  CHECK(indexed_part(list, "key_absorb").freed_by.contains(mla_up_proj));
  CHECK(indexed_part(list, "q_up").repeated_by.contains(mla_up_proj));
  CHECK_FALSE(indexed_part(list, "q_up").freed_by.contains(mla_up_proj));
  CHECK_FALSE(indexed_part(list, "attention_keys").freed_by.contains(mla_up_proj));
}

TEST_CASE("full recomputation repeats all of a layer but the indexer's loss") {
  const LayerCosts costs =
      indexed_costs(indexed_model(), "bf16", {.tp = 8, .microbatch = 1, .sequence_parallel = true});
  CHECK(costs.once.device > Seconds{});
  CHECK(costs.once.device < 0.5 * costs.forward.device);
  CHECK(costs.once.exposed[Axis::tp] > Seconds{});  // of index_target_reduce
  ModelSpec full = indexed_model();
  full.dsa = {};
  CHECK(indexed_costs(full).once.device == Seconds{});
  // Recomputed layers take the time of their forward once more, less that of the loss.
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  const Framework framework = find_framework("megatron-core").value();
  const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  const CostModel cost_model(indexed_model(), indexed_job(), cluster, framework, calibration);
  ParallelPlan plan;
  plan.tp = 8;
  plan.sequence_parallel = true;
  plan.layers_per_stage = {61};
  plan.recompute = Recompute::full;
  plan.recompute_layers = {61};
  const ShardingCosts sharding = cost_model.sharding_costs(plan);
  const StageModel model(cost_model, plan, sharding);
  const StageTimes times =
      model.times({.index = 0, .layers = {3, 0}, .recomputed = {3, 0}, .selective = {0, 0}});
  CHECK(times.recompute / (3 * (costs.forward.device - costs.once.device)) == Approx(1));
}

TEST_CASE("a product without an input gradient takes the time of its weights' gradient alone") {
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  const Framework framework = find_framework("megatron-core").value();
  const Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  // A gradient of its own, which one more kernel adds to those of the microbatches before.
  const TrainingJob job = indexed_job(8192, "bf16:deepspeed-zero");
  const ModelSpec model = indexed_model();
  const LayerSharding sharding{.microbatch = 1};
  const DeviceRates rates = device_rates(cluster.gpu(), calibration, Dtype::bf16);
  const OperatorContext context{rates, rates, {},          sharding, model.moe,
                                132,   job,   calibration, framework};
  Operator op = indexed_part(indexed_layer(), "index_queries");
  const BackwardTimes alone = backward_gemm(op, context);
  CHECK(alone.input == Seconds{});
  op.input_gradient = true;
  CHECK(backward_gemm(op, context).input > 0.5 * alone.weight);
  CHECK(backward_gemm(op, context).weight == alone.weight);
  // The weights of products in the core add up over microbatches, too.
  op.has_weight = false;
  CHECK(backward_gemm(op, context).weight < alone.weight);
}

TEST_CASE("of sparse attention the norm alone can wait in host memory") {
  const OperatorList list = indexed_layer();
  CHECK(indexed_part(list, "input_norm").offloaded_by == OffloadModule::attn_norm);
  for (const char* name : {"q_down", "kv_down", "q_up", "attention_inputs", "projection"}) {
    INFO(name);
    CHECK_FALSE(indexed_part(list, name).offloaded_by.has_value());
  }
  for (const Operator& op : list.view()) {
    INFO(std::string(op.name));
    CHECK((op.offloaded_by != OffloadModule::core_attn));
  }
}

TEST_CASE("products with views of the up projection stay in 16 bits, and accumulate gradients") {
  const OperatorList list = indexed_layer({.microbatch = 1}, indexed_model(), 8192, "fp8");
  for (const char* name : {"key_absorb", "value_up"}) {
    INFO(name);
    CHECK(indexed_part(list, name).wide);
    CHECK(indexed_part(list, name).has_weight);
  }
  CHECK_FALSE(indexed_part(list, "q_up").wide);
}

TEST_CASE("without a Hadamard transform queries and key move once less") {
  ModelSpec plain = indexed_model();
  plain.dsa.hadamard = false;
  const Operator with = indexed_part(indexed_layer(), "index_rope");
  const Operator without = indexed_part(indexed_layer({.microbatch = 1}, plain), "index_rope");
  CHECK((with.forward_traffic - without.forward_traffic).in(kByte) ==
        Approx(2 * kIndexedTokens * 65 * 2 * 128));
}

TEST_CASE("every tensor-parallel rank holds the whole indexer") {
  const ModelSpec model = indexed_model();
  ModelSpec full = model;
  full.dsa = {};
  for (const int tp : {1, 2, 8}) {
    CHECK(layer_parameters_per_rank(model, tp) - layer_parameters_per_rank(full, tp) ==
          Approx(1536.0 * 64 * 128 + 7168.0 * (128 + 64) + 2 * 128));
  }
}

TEST_CASE("times of a model with sparse attention are extrapolated, whatever the calibration") {
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 8).value();
  const Framework framework = find_framework("megatron-core").value();
  Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  calibration.evidence = Evidence::calibrated;
  TrainingJob j;
  j.sequence = 8192;
  j.global_batch = 8;
  PlanCosts costs;
  costs.time.step = 1_s;
  ParallelPlan plan;
  plan.dp = 8;
  CostModel(indexed_model(), j, cluster, framework, calibration).price_throughput(plan, costs);
  CHECK(costs.evidence == Evidence::extrapolated);
}

TEST_CASE("context parallelism gathers the keys of attention and of the indexer") {
  const OperatorList whole = indexed_layer();
  const OperatorList half =
      indexed_layer({.cp = 2, .cp_comm = CpComm::all_gather, .microbatch = 1});
  CHECK_FALSE(has_indexed_part(whole, "key_gather"));
  const std::pair<const char*, double> gathers[] = {{"key_gather", kAbsorbedKey},
                                                    {"index_key_gather", 128}};
  for (const auto& [name, width] : gathers) {
    const Operator gather = indexed_part(half, name);
    INFO(name);
    CHECK(gather.axis == Axis::cp);
    CHECK(gather.payload.in(kByte) == Approx(2 * kIndexedTokens * width));
    CHECK(gather.forward_collective == CollectiveKind::all_gather);
    CHECK(gather.backward_collective == CollectiveKind::reduce_scatter);
  }
  // Half of the queries, each with as many keys as before.
  for (const char* name : {"index_scores", "sparse_attention", "index_target", "index_gradients"}) {
    INFO(name);
    CHECK(indexed_flops(indexed_part(half, name)) ==
          Approx(indexed_flops(indexed_part(whole, name)) / 2));
  }
  // Each rank keeps the keys of all; recomputed attention keeps its own, and gathers the others.
  const Operator own = indexed_part(half, "attention_keys");
  const Operator others = indexed_part(half, "gathered_keys");
  CHECK(own.saved + others.saved == indexed_part(whole, "attention_keys").saved);
  CHECK(own.saved == others.saved);
  CHECK_FALSE(own.freed_by.contains(RecomputeModule::core_attn));
  CHECK(others.freed_by.contains(RecomputeModule::core_attn));
}
