// Hybrid models in Megatron-LM's scripts: patterns of layers, ratios, state spaces, what is
// refused.
#include <string>
#include <utility>

#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "interop/configs/hybrid_pattern.hpp"
#include "interop/configs/rows.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using P = ParallelPlan;

constexpr const char* kOrder8b = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";

/// The options of Nemotron-H 8B next to those of its layers.
std::string script_of_8b(const std::string& layers) {
  return "torchrun --nproc-per-node 8 --nnodes 8 pretrain_mamba.py "
         "--tensor-model-parallel-size 4 --sequence-parallel --hidden-size 4096 "
         "--ffn-hidden-size 21504 --num-attention-heads 32 --group-query-attention "
         "--num-query-groups 8 --kv-channels 128 --seq-length 8192 "
         "--max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 256 --bf16 "
         "--use-distributed-optimizer --squared-relu --normalization RMSNorm "
         "--disable-bias-linear --untie-embeddings-and-output-weights "
         "--position-embedding-type none --vocab-size 131072 --hidden-dropout 0 "
         "--attention-dropout 0 --num-layers 52 " +
         layers;
}

std::string pattern_option(const std::string& pattern) {
  return "--hybrid-layer-pattern '" + pattern + "'";
}

Result<ImportedConfig> read_script_text(const std::string& text, GivenRun given = {}) {
  return import_config({{"train.sh", text}}, given);
}

ModelSpec model_in(const std::string& text) {
  const Result<ImportedConfig> read = read_script_text(text);
  INFO(text << "\n" << (read ? "" : read.error().message()));
  REQUIRE(read.ok());
  CHECK(read->asks.empty());
  CHECK(read->unpriced.empty());
  return read->config.model;
}

std::string refusal_of_8b(const std::string& layers) {
  const Result<ImportedConfig> read = read_script_text(script_of_8b(layers));
  return read ? "no error" : read.error().message();
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE("a Megatron-LM script of Nemotron-H is the model of the catalog") {
  const std::string sizes =
      " --is-hybrid-model --mamba-state-dim 128 --mamba-head-dim 64 --mamba-num-groups 8";
  for (const std::string option : {"--hybrid-layer-pattern ", "--hybrid-override-pattern "}) {
    const Result<ImportedConfig> read =
        read_script_text(script_of_8b(option + kOrder8b + sizes + " --mamba-num-heads 128"));
    REQUIRE(read.ok());
    CHECK(read->asks.empty());
    CHECK(read->unpriced.empty());
    CHECK(read->config.model_name == "nemotron-h-8b");
    const ModelSpec& model = read->config.model;
    CHECK(model.parameters() == load_model("nemotron-h-8b")->parameters());
    CHECK(model.layer_pattern == kOrder8b);
    CHECK(model.ssm == load_model("nemotron-h-8b")->ssm);
    CHECK(model.mlp_only_layers == 24);
    CHECK(read->config.plan.layers_per_stage == std::vector{52});
  }
  // The defaults: heads of 64 as wide as twice the hidden state, 8 groups, states of 128.
  CHECK(model_in(script_of_8b(pattern_option(kOrder8b))).ssm == load_model("nemotron-h-8b")->ssm);
  // The pattern counts, not --num-layers.
  CHECK(model_in(script_of_8b(pattern_option("M-M*-M-"))).layers == 7);
}

TEST_CASE("a Megatron-LM script of Nemotron 3 Nano is the model of the catalog") {
  const ModelSpec nano = *load_model("nemotron-3-nano-30b-a3b");
  const std::string text =
      "torchrun --nproc_per_node 8 --nnodes 4 pretrain_hybrid.py --hybrid-layer-pattern '" +
      nano.layer_pattern +
      "' --spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec "
      "--hidden-size 2688 --ffn-hidden-size 1856 --num-attention-heads 32 "
      "--group-query-attention --num-query-groups 2 --kv-channels 128 --mamba-num-heads 64 "
      "--num-experts 128 --moe-grouped-gemm --moe-router-topk 6 --moe-ffn-hidden-size 1856 "
      "--moe-shared-expert-intermediate-size 3712 --moe-router-score-function sigmoid "
      "--moe-router-enable-expert-bias --moe-router-topk-scaling-factor 2.5 "
      "--moe-layer-freq 1 --seq-length 8192 --max-position-embeddings 262144 "
      "--micro-batch-size 1 --global-batch-size 64 --bf16 --squared-relu "
      "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
      "--position-embedding-type none --vocab-size 131072 --hidden-dropout 0 "
      "--attention-dropout 0 --expert-model-parallel-size 8";
  const ModelSpec read = model_in(text);
  CHECK(read.parameters() == nano.parameters());
  CHECK(read.name == "nemotron-3-nano-30b-a3b");
  CHECK(read.ssm == nano.ssm);
  CHECK(read.moe == nano.moe);
  const std::string experts = "--num-experts 128 ";
  std::string without = text;
  without.erase(without.find(experts), experts.size());
  const Result<ImportedConfig> none = read_script_text(without);
  REQUIRE_FALSE(none.ok());
  CHECK(contains(none.error().message(), "--num-experts"));
}

TEST_CASE("ratios of layers are allocated as Megatron-LM allocates them") {
  // Computed by pattern_from_ratios of Megatron-LM d98e8a64.
  CHECK(pattern_of_ratios(52, 0.08, 0.5) == "M-M-M--M-M*-M-M-M--M*-M-M-M-M-M*--M-M-M-M*-M--M-M-M-");
  CHECK(pattern_of_ratios(10, 0.3, 0.3) == "M-*MM*-*M-");
  CHECK(pattern_of_ratios(48, 0.5, 0.2) == "M*-*M*M*-*M*-*M*M*-*M*-**M*-*M*M*-*M*-*M*M*-*M*-");
  CHECK(pattern_of_ratios(10, 0.25, 0.45) == "M-M*-M*-M-");  // halves are rounded to even numbers
  CHECK(pattern_of_ratios(5, 0, 0.5) == "MM-M-");
  CHECK(pattern_of_ratios(8, 1, 0) == "********");
  const std::string ratios = "--hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5";
  const ModelSpec model = model_in(script_of_8b(ratios));
  CHECK(model.layers == 52);
  CHECK(model.ssm.layers == 22);
  CHECK(model.mlp_only_layers == 26);
  CHECK(contains(refusal_of_8b("--hybrid-attention-ratio 0.6 --hybrid-mlp-ratio 0.5"),
                 "add up to at most 1"));
  CHECK(contains(refusal_of_8b("--hybrid-attention-ratio 1.5"), "1.5"));
  // Next to a pattern they have to give its numbers of layers.
  CHECK(contains(refusal_of_8b(pattern_option(kOrder8b) + " " + ratios), "numbers of layers"));
  // The ordinary transformers of releases that print the ratios of every run.
  const std::string zero = "--hybrid-attention-ratio 0.0 --hybrid-mlp-ratio 0.0";
  CHECK(model_in(script_of_8b(zero + " --mamba-state-dim 128")).ssm == StateSpace{});
}

TEST_CASE("layers of a pattern without a price are refused by name, with --model as the way") {
  const std::pair<const char*, const char*> refused[] = {
      {"MGM*-", "gated delta nets"},
      {"M-D-", "sparse attention"},
      {"M-+-", "latent attention"},
      {"M*M*M*", "no layer with an MLP"},
      {"M-M-M-", "no layer with attention"},
      {"M*-ME", "layers with one MLP (-) and layers with experts (E)"},
      {"M*-M-/MM/MM", "prediction modules of the layers 'MM'"}};
  for (const auto& [pattern, reason] : refused) {
    const std::string message = refusal_of_8b(pattern_option(pattern));
    CHECK(contains(message, reason));
    CHECK(contains(message, "--model"));
    CHECK(contains(message, "train.sh line 1: --hybrid-layer-pattern"));
    // Whoever gives the model is not asked about its layers.
    GivenRun given;
    given.model = *load_model("nemotron-h-8b");
    CHECK(read_script_text(script_of_8b(pattern_option(pattern)), given).ok());
  }
  CHECK(contains(refusal_of_8b(pattern_option("MX*-")), "the letter 'X'"));
  CHECK(contains(refusal_of_8b(pattern_option("|")), "without layers"));
  const auto huge = parse_hybrid_pattern(std::string(100'001, 'M'), "here");
  REQUIRE_FALSE(huge.ok());
  CHECK(contains(huge.error().message(), "100001 letters"));
  CHECK(contains(refusal_of_8b("--is-hybrid-model"), "no layer with"));
  CHECK(contains(refusal_of_8b("--spec megatron.core.models.mamba.mamba_layer_specs "
                               "mamba_stack_spec"),
                 "no layer with"));
  CHECK(contains(refusal_of_8b(pattern_option("M*-") + " --hybrid-override-pattern 'M-*'"),
                 "one of the two options"));
  CHECK(contains(refusal_of_8b(pattern_option("M*-") + " --num-experts 8"), "without E"));
}

TEST_CASE("options of Mamba are never ignored") {
  CHECK(contains(refusal_of_8b("--mamba-num-heads 128"), "--hybrid-layer-pattern"));
  CHECK(contains(refusal_of_8b("--mamba-state-dim 256"), "without their pattern"));
  CHECK(contains(refusal_of_8b("--mtp-hybrid-override-pattern '*E'"), "without their pattern"));
  const std::string pattern = pattern_option("M*-M-");
  const ModelSpec model = model_in(
      script_of_8b(pattern + " --mamba-state-dim 256 --mamba-head-dim 128 --mamba-num-groups 4"));
  CHECK(model.ssm == StateSpace{.layers = 2,
                                .heads = 64,
                                .head_dim = 128,
                                .groups = 4,
                                .state_dim = 256,
                                .conv_kernel = 4});
  CHECK(contains(refusal_of_8b(pattern + " --mamba-num-groups 7"), "7 groups"));
  CHECK(contains(refusal_of_8b(pattern + " --mamba-head-dim 60"), "--mamba-num-heads"));
  CHECK(contains(refusal_of_8b(pattern + " --mamba-state-dim 0"), "state_dim"));
  const Result<ImportedConfig> slow =
      read_script_text(script_of_8b(pattern + " --disable-mamba-mem-eff-path"));
  REQUIRE(slow.ok());
  REQUIRE(slow->unpriced.size() == 1);
  CHECK(contains(slow->unpriced.front(), "--disable-mamba-mem-eff-path"));
}

TEST_CASE("bars of a pattern are the pipeline's chunks, and parts behind a / prediction modules") {
  const auto read = [](const std::string& options) {
    Result<ImportedConfig> config = read_script_text(script_of_8b(options));
    INFO((config ? "" : config.error().message()));
    REQUIRE(config.ok());
    return std::move(config->config);
  };
  const std::string two = " --pipeline-model-parallel-size 2";
  const RunConfig stages = read(pattern_option("M-M*-|M-") + two);
  CHECK(stages.plan.layers_per_stage == std::vector{5, 2});
  CHECK(stages.plan.vpp == 1);
  CHECK(stages.model.layers == 7);
  const RunConfig chunks = read(pattern_option("M-|M*-|M-|M-") + two);
  CHECK(chunks.plan.vpp == 2);
  CHECK(chunks.plan.layers_per_stage == std::vector{4, 5});
  CHECK(read(pattern_option("M-M*-M") + two).plan.layers_per_stage == std::vector{3, 3});
  CHECK(read(pattern_option("M-M*-M-M") + two + " --decoder-first-pipeline-num-layers 5")
            .plan.layers_per_stage == std::vector{5, 3});
  CHECK(contains(refusal_of_8b(pattern_option("M-|M*-|M-") + two), "a multiple of pp 2"));
  const RunConfig modules = read(pattern_option("M-M*-/*-/*-"));
  CHECK(modules.model.prediction_modules == 2);
  CHECK(modules.model.layers == 5);
  CHECK(read(pattern_option("M-M*-") + " --mtp-num-layers 1 --mtp-hybrid-override-pattern '*-'")
            .model.prediction_modules == 1);
  CHECK(contains(refusal_of_8b(pattern_option("M-M*-") +
                               " --mtp-num-layers 1 --mtp-hybrid-override-pattern 'M-'"),
                 "'M-'"));
  CHECK(contains(refusal_of_8b(pattern_option("M-M*-") + " --mtp-num-layers 1"),
                 "without their layers"));
}

RunConfig run_of_hybrid(const ModelSpec& model, P plan) {
  RunConfig run;
  run.model = model;
  run.model_name = model.name;
  run.framework = "megatron-core";
  run.sequence = 8192;
  run.global_batch = 64;
  run.gpus = 8;
  run.gpus_per_node = 8;
  run.precision = "bf16:adam-fp32-master";
  run.plan = std::move(plan);
  return run;
}

TEST_CASE("a hybrid's plan is exported to Megatron-LM and comes back as it was") {
  const ConfigFormat& format = **find_config_format("megatron-lm");
  for (const int modules : {0, 1}) {
    for (const auto& stages : {std::vector{52}, std::vector{27, 25}, std::vector{14, 13, 13, 12}}) {
      ModelSpec model = *load_model("nemotron-h-8b");
      model.prediction_modules = modules;
      P plan;
      plan.pp = static_cast<int>(stages.size());
      plan.vpp = plan.pp == 4 ? 2 : 1;
      plan.schedule = plan.vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
      plan.overlap_pp = plan.vpp > 1;
      plan.microbatch_group = plan.vpp > 1 ? plan.pp : 1;
      plan.dp = plan.shard_group = 8 / plan.pp;
      plan.layers_per_stage = stages;
      plan.recompute_layers.assign(stages.size(), 0);
      const RunConfig run = run_of_hybrid(model, plan);
      const ExportedConfig exported = export_config(format, run);
      CAPTURE(exported.text);
      for (const Inexpressible& lost : exported.lost) {
        FAIL_CHECK(std::string(label_of(lost.field)) + ": " + lost.wanted + " " + lost.instead);
      }
      CHECK(contains(exported.text, "pretrain_hybrid.py"));
      CHECK_FALSE(exported.text.find("pipeline-model-parallel-layout") != std::string::npos);
      CHECK(contains(exported.arguments, "--mamba-num-heads 128"));
      const Result<ImportedConfig> back = read_script_text(exported.text);
      INFO((back ? "" : back.error().message()));
      REQUIRE(back.ok());
      for (const auto* fields : {&model_fields(), &arithmetic_fields()}) {
        for (const NamedConfigField& field : *fields) {
          CAPTURE(field.label);
          if (has_effect(field.field, run)) CHECK(same_value(field.field, run, back->config));
        }
      }
      CHECK(back->config.plan.layers_per_stage == stages);
      CHECK(back->config.plan.vpp == plan.vpp);
    }
  }
}

TEST_CASE("an export says that the order of a hybrid's layers is what it lacks") {
  const ConfigFormat& format = **find_config_format("megatron-lm");
  ModelSpec model = *load_model("nemotron-h-8b");
  model.layer_pattern.clear();
  P plan;
  plan.dp = plan.shard_group = 8;
  plan.layers_per_stage = {52};
  plan.recompute_layers = {0};
  const ExportedConfig exported = export_config(format, run_of_hybrid(model, plan));
  REQUIRE_FALSE(exported.lost.empty());
  CHECK(contains(exported.lost.front().why, "the order of the 52 layers is not known here"));
  CHECK(contains(exported.lost.front().why, "--hybrid-layer-pattern"));
  CHECK(contains(exported.text, "not expressed: 24 layers with a state space"));
  const ModelSpec granite = *load_model("granite-4.0-h-small");
  plan.layers_per_stage = {granite.layers};
  bool said = false;
  for (const Inexpressible& lost : export_config(format, run_of_hybrid(granite, plan)).lost) {
    said = said || lost.why.find("two layers each") != std::string::npos;
  }
  CHECK(said);
}

TEST_CASE("experts without a width of their own are as wide as dense layers") {
  const std::string options = "--num-experts 8 --moe-router-topk 2";
  CHECK(model_in(script_of_8b(options)).moe.expert_ffn_hidden == 21504);
  CHECK(model_in(script_of_8b(options + " --moe-ffn-hidden-size 512")).moe.expert_ffn_hidden ==
        512);
}

}  // namespace
}  // namespace echelon
