// Every model of the catalog in every format: what is imported again is the same model, or the
// export names what differs. And what Megatron-LM refuses, or would train as another model.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using P = ParallelPlan;

const ConfigFormat& format_named(const char* name) { return **find_config_format(name); }

/// On one rank each, of so many tokens.
RunConfig run_of_model(const ConfigFormat& format, const ModelSpec& model, int sequence = 0) {
  RunConfig run;
  run.model = model;
  run.model_name = model.name;
  run.framework = "megatron-core";
  run.sequence = sequence > 0 ? sequence : std::min(1024, model.max_positions);
  run.global_batch = 64;
  run.gpus = run.gpus_per_node = 8;
  run.precision = std::string(row_of(format, &RunConfig::precision)->cases.front().value);
  run.plan.dp = run.plan.shard_group = 8;
  run.plan.layers_per_stage = {model.layers};
  run.plan.recompute_layers = {0};
  return run;
}

ExportedConfig exported_model(const char* format, const char* model, int sequence = 0) {
  const ConfigFormat& target = format_named(format);
  return export_config(target, run_of_model(target, *load_model(model), sequence));
}

/// What the file leaves to the user's code.
GivenRun given_besides(const ConfigFormat& format, const RunConfig& run) {
  GivenRun given;
  given.format = std::string(format.name);
  given.gpus = run.gpus;
  if (!row_of(format, &RunConfig::sequence)->elsewhere.empty()) given.sequence = run.sequence;
  if (!row_of(format, &RunConfig::global_batch)->elsewhere.empty()) {
    given.global_batch = run.global_batch;
  }
  if (row_of(format, &ModelSpec::layers) == nullptr) given.model = run.model;
  return given;
}

std::string lost_text(const ExportedConfig& exported) {
  std::string out;
  for (const Inexpressible& each : exported.lost) {
    out += std::string(label_of(each.field)) + " " + each.wanted + " -> " + each.instead + "; ";
  }
  return out;
}

bool loses(const ExportedConfig& exported, const ConfigField& field) {
  return std::ranges::any_of(exported.lost, [&](const Inexpressible& each) {
    return each.wanted.empty() || each.field == field;
  });
}

bool writes(const ExportedConfig& exported, const std::string& option) {
  return exported.arguments.find("  --" + option + " \\\n") != std::string::npos ||
         exported.arguments.find("  --" + option + "\n") != std::string::npos;
}

TEST_CASE("the fields of a run describe a whole model") {
  for (const CatalogModel& each : model_catalog()) {
    const RunConfig known{.model = *load_model(each.name)};
    RunConfig copy;
    copy.model.name = known.model.name;
    copy.model.architecture = known.model.architecture;
    copy.model.source = known.model.source;
    for (const auto* fields : {&model_fields(), &arithmetic_fields()}) {
      for (const NamedConfigField& field : *fields) {
        CAPTURE(each.name, field.label, text_of(field.field, known));
        CHECK(set_text(field.field, text_of(field.field, known), "here", copy));
      }
    }
    CAPTURE(model_to_json(known.model), model_to_json(copy.model));
    CHECK(copy.model == known.model);
  }
}

TEST_CASE("every model comes back from every format, or the export names what differs") {
  for (const ConfigFormat& format : config_formats()) {
    if (!format.exported) continue;
    int whole = 0;
    for (const CatalogModel& each : model_catalog()) {
      const RunConfig run = run_of_model(format, *load_model(each.name));
      const ExportedConfig exported = export_config(format, run);
      const Result<ImportedConfig> back =
          import_config({{fmt::format("run.{}", extension_of(format.syntax)), exported.text}},
                        given_besides(format, run));
      CAPTURE(format.name, each.name, lost_text(exported), exported.text);
      if (!back) {
        INFO(back.error().message());
        CHECK_FALSE(exported.lost.empty());
        continue;
      }
      for (const auto* fields : {&model_fields(), &arithmetic_fields()}) {
        for (const NamedConfigField& field : *fields) {
          const bool same = same_value(field.field, run, back->config);
          CAPTURE(field.label, text_of(field.field, run), text_of(field.field, back->config));
          if (has_effect(field.field, run)) CHECK(same != loses(exported, field.field));
        }
      }
      // A recipe that is another function with its changes: the user fills in which.
      const bool whole_file = exported.text.find("FILL_IN()") == std::string::npos;
      for (const PlanField& field : plan_fields()) {
        CAPTURE(field.key);
        const bool stated =
            whole_file && row_of(format, &field)->elsewhere.empty() && has_effect(&field, run);
        if (stated) CHECK(same_value(&field, run, back->config) != loses(exported, &field));
      }
      if (exported.lost.empty()) ++whole;
    }
    CAPTURE(format.name, whole);
    CHECK(whole > 0);
  }
}

TEST_CASE("Megatron-LM expresses most models of the catalog") {
  // Parallel blocks, second norms, GELU gates, ALiBi, ReLU, norms over all heads, chunks, LongRoPE
  // and dynamic scaling, rotary pairs and layers without, a rotary base that is no whole number …,
  // and state spaces in layers of two parts.
  const std::set<std::string> others = {
      "apertus-8b",      "bloom-176b",   "bloom-7b1",        "command-a",
      "command-r-plus",  "deepseek-v2",  "ernie4.5-21b-a3b", "exaone4-32b",
      "falcon-180b",     "gemma-2b",     "gemma-7b",         "gemma2-27b",
      "gemma2-2b",       "gemma2-9b",    "gemma3-12b",       "gemma3-1b",
      "gemma3-270m",     "gemma3-27b",   "gemma3-4b",        "glm-130b",
      "glm-4-9b",        "gpt-j-6b",     "gpt-neox-20b",     "granite-4.0-h-small",
      "granite3.3-8b",   "hunyuan-a13b", "internlm3-8b",     "kimi-k2",
      "llama4-maverick", "llama4-scout", "minimax-m2",       "ministral3-8b",
      "olmo3-32b",       "olmo3-7b",     "olmoe-7b",         "opt-175b",
      "phi-1.5",         "phi-2",        "pythia-1.4b",      "pythia-12b",
      "pythia-160m",     "pythia-1b",    "pythia-2.8b",      "pythia-410m",
      "pythia-6.9b",     "pythia-70m",   "smollm3-3b",       "starcoder2-3b"};
  // Heads that differ between layers, short convolutions, queries that grow with their positions,
  // LongRoPE.
  const std::set<std::string> recent = {
      "gemma4-12b", "gemma4-26b-a4b", "gemma4-31b",  "lfm2-1.2b",
      "lfm2-2.6b",  "lfm2-350m",      "lfm2-8b-a1b", "mistral-small-4-119b-a6b",
      "phi-4-mini", "kimi-k2.5"};
  const ConfigFormat& format = format_named("megatron-lm");
  for (const CatalogModel& each : model_catalog()) {
    const ExportedConfig exported =
        export_config(format, run_of_model(format, *load_model(each.name)));
    CAPTURE(each.name, lost_text(exported));
    CHECK(exported.lost.empty() != (others.contains(each.name) || recent.contains(each.name)));
  }
}

TEST_CASE("the bias that corrects sigmoid scores is exported with their function") {
  for (const char* model : {"deepseek-v3", "kimi-k2", "glm-4.5", "glm-4.6", "minimax-m2"}) {
    const ExportedConfig exported = exported_model("megatron-lm", model);
    CAPTURE(model, exported.text);
    CHECK(writes(exported, "moe-router-enable-expert-bias"));
    CHECK(writes(exported, "moe-router-score-function sigmoid"));
  }
  const ExportedConfig v3 = exported_model("megatron-lm", "deepseek-v3");
  for (const char* option :
       {"moe-router-num-groups 8", "moe-router-group-topk 4", "moe-router-topk-scaling-factor 2.5",
        "qk-layernorm", "rope-type yarn", "rotary-scaling-factor 40", "mscale-all-dim 1"}) {
    CAPTURE(option, v3.text);
    CHECK(writes(v3, option));
  }
  // Softmax over all experts, whose chosen weights are not divided by their sum.
  for (const char* model : {"deepseek-v2", "qwen1.5-moe-a2.7b", "olmoe-7b"}) {
    CAPTURE(model);
    CHECK(writes(exported_model("megatron-lm", model), "moe-router-pre-softmax"));
  }
  CHECK_FALSE(writes(exported_model("megatron-lm", "mixtral-8x7b"), "moe-router-pre-softmax"));
}

TEST_CASE("model files without a score function have sigmoid where a bias corrects scores") {
  ModelSpec model = *load_model("deepseek-v3");
  std::string text = model_to_json(model);
  CHECK(text.find("router_score") == std::string::npos);
  CHECK(parse_model(text, "model.json")->moe.router_score == RouterScore::sigmoid);
  CHECK(load_model("gpt-oss-20b")->moe.router_score == RouterScore::softmax);
}

TEST_CASE("GPT-OSS is exported with its biases, sinks, windows and bounds") {
  const ExportedConfig exported = exported_model("megatron-lm", "gpt-oss-20b");
  CAPTURE(exported.text, lost_text(exported));
  CHECK(exported.lost.empty());
  for (const char* option :
       {"quick-geglu", "glu-linear-offset 1.0", "activation-func-clamp-value 7.0",
        "no-bias-dropout-fusion", "softmax-type learnable", "window-size 127,0",
        "window-attn-skip-freq 2", "position-embedding-type yarn", "yarn-beta-fast 32",
        "no-yarn-correction-range-round-to-int", "rotary-base 150000"}) {
    CAPTURE(option);
    CHECK(writes(exported, option));
  }
  for (const char* option : {"disable-bias-linear", "swiglu", "moe-router-enable-expert-bias"}) {
    CAPTURE(option);
    CHECK_FALSE(writes(exported, option));
  }
  CHECK(exported.text.find("core 0.19") != std::string::npos);
}

TEST_CASE("parts of a model that a format has no option for are named") {
  const auto lost_of = [](const char* format, const char* model) {
    return lost_text(exported_model(format, model));
  };
  const auto names = [](const std::string& lost, const char* what) {
    CAPTURE(lost, what);
    CHECK(lost.find(what) != std::string::npos);
  };
  names(lost_of("megatron-lm", "phi-2"), "parallel attention and MLP true -> false");
  names(lost_of("megatron-lm", "phi-2"), "bias of the output head true -> false");
  names(lost_of("megatron-lm", "olmo3-7b"), "QK-norm over all heads true -> false");
  names(lost_of("megatron-lm", "olmo3-7b"), "norms after attention and MLP instead of before");
  names(lost_of("megatron-lm", "minimax-m2"), "QK-norm over all heads");
  names(lost_of("megatron-lm", "gemma2-9b"), "attention scores capped at 50");
  names(lost_of("nanotron", "qwen3-next-80b-a3b"), "layers with a gated delta net 36 -> 0");
  names(lost_of("nanotron", "mixtral-8x7b"), "experts 8 -> 0");
  names(lost_of("nanotron", "llama3.1-8b"), "scaling of rotary positions llama3 -> none");
  names(lost_of("nanotron", "nemotron-h-8b"), "layers with a state space 24 -> 0");
  names(lost_of("nanotron", "nemotron-h-8b"), "layers of an MLP alone 24 -> 0");
  names(lost_of("nanotron", "nemotron-3-super-120b-a12b"),
        "width of the experts' latent 1024 -> 0");
  CHECK(lost_of("megatron-lm", "nemotron-3-super-120b-a12b").empty());
  CHECK(lost_of("nanotron", "llama3-8b").empty());
  CHECK(lost_of("megatron-lm", "qwen3-next-80b-a3b").empty());
}

TEST_CASE("a model that is not the one of its name is not exported by name") {
  const ConfigFormat& format = format_named("torchtitan");
  RunConfig run = run_of_model(format, *load_model("llama3-8b"));
  CHECK_FALSE(loses(export_config(format, run), &RotaryEmbedding::theta));
  run.model.constants->rope.theta = 1e6;
  run.model.layers = run.plan.layers_per_stage[0] = 31;
  CHECK(loses(export_config(format, run), &RotaryEmbedding::theta));
  CHECK(loses(export_config(format, run), &ModelSpec::layers));
}

TEST_CASE("a sequence beyond the model's context is exported with the positions that it needs") {
  constexpr int kLong = 131'072;
  const ExportedConfig megatron = exported_model("megatron-lm", "llama3-8b", kLong);
  CAPTURE(megatron.text);
  CHECK(megatron.lost.empty());
  CHECK(writes(megatron, "seq-length 131072"));
  CHECK(writes(megatron, "max-position-embeddings 131072"));
  const ExportedConfig nanotron = exported_model("nanotron", "llama3-8b", kLong);
  CHECK(nanotron.lost.empty());
  CHECK(nanotron.text.find("max_position_embeddings: 131072") != std::string::npos);
  CHECK(writes(exported_model("megatron-lm", "llama3-8b", 4096), "max-position-embeddings 8192"));
  // A table of learned positions would be another model.
  const ExportedConfig learned = exported_model("megatron-lm", "gpt2", 2048);
  CHECK(lost_text(learned) == "context length 1024 -> 2048; ");
}

TEST_CASE("patterns of layers with experts are written and read") {
  const ConfigFormat& format = format_named("megatron-lm");
  for (const auto& [first, every] :
       {std::pair{0, 1}, {0, 2}, {1, 2}, {3, 1}, {1, 3}, {2, 4}, {31, 1}}) {
    RunConfig run = run_of_model(format, *load_model("mixtral-8x7b"));
    run.model.moe.first_dense_layers = first;
    run.model.moe.every = every;
    const ExportedConfig exported = export_config(format, run);
    CAPTURE(first, every, exported.text, lost_text(exported));
    const Result<ImportedConfig> back = import_config({{"run.sh", exported.text}}, GivenRun{});
    REQUIRE(back);
    CHECK(back->config.model.moe_layers() == run.model.moe_layers());
    CHECK(back->config.model.moe.first_dense_layers == first);
  }
  const auto read = [](const char* pattern) {
    return import_config({{"train.sh",
                           "torchrun pretrain_gpt.py --num-layers 4 --num-experts 2 "
                           "--moe-layer-freq '" +
                               std::string(pattern) + "'\n"}},
                         GivenRun{})
        .ok();
  };
  CHECK(read("[0,1,0,1]"));
  for (const char* pattern : {"[1,1,0,1]", "([1]", "[1]*", "[]", "[1]*99999999", "((((((([1]"}) {
    CAPTURE(pattern);
    CHECK_FALSE(read(pattern));
  }
}

TEST_CASE("a Megatron-LM script with sparse attention is read where it has a price") {
  const std::string shapes =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 6 --hidden-size 512 \\\n"
      "  --num-attention-heads 64 --seq-length 4096 --micro-batch-size 1 --global-batch-size 8 \\\n"
      "  --max-position-embeddings 4096 --vocab-size 1000 --position-embedding-type rope \\\n"
      "  --multi-latent-attention --q-lora-rank 192 --kv-lora-rank 512 --qk-head-dim 64 \\\n"
      "  --qk-pos-emb-head-dim 64 --v-head-dim 64 --disable-bias-linear --bf16 --qk-layernorm \\\n";
  const auto read = [&](const std::string& rest) {
    return import_config({{"train.sh", shapes + rest + "\n"}}, GivenRun{});
  };
  const std::string indexer =
      " --experimental-attention-variant dsa --dsa-indexer-n-heads 16 --dsa-indexer-head-dim 128 "
      "--dsa-indexer-topk 1024";
  const std::string loss = " --dsa-indexer-loss-coeff 0.01";
  const std::string sparse = " --dsa-indexer-use-sparse-loss";
  const std::string kernels = " --dsa-kernel-backend cudnn";
  const Result<ImportedConfig> whole = read(indexer + loss + sparse + kernels);
  INFO((whole ? "" : whole.error().message()));
  REQUIRE(whole);
  CHECK(whole->config.model.dsa ==
        SparseAttention{.topk = 1024, .index_heads = 16, .index_head_dim = 128});
  const auto why = [&](const std::string& rest) {
    const Result<ImportedConfig> refused = read(rest);
    return refused ? std::string("read") : refused.error().message();
  };
  const auto names = [&](const std::string& rest, const char* part) {
    INFO(why(rest));
    return why(rest).find(part) != std::string::npos;
  };
  CHECK(names(indexer + loss + sparse + " --dsa-kernel-backend tilelang", "TileLang"));
  CHECK(names(indexer + loss + sparse + kernels + " --no-dsa-indexer-scoring-relu", "ReLU"));
  const Result<ImportedConfig> glm =
      read(indexer + loss + sparse + kernels +
           " --dsa-indexer-rope-interleaved --no-dsa-indexer-rotate-activation");
  REQUIRE(glm);
  CHECK(glm->config.model.dsa.rope_interleaved);
  CHECK_FALSE(glm->config.model.dsa.hadamard);
  // Megatron-LM's own test of DSA: PyTorch's path, and a loss over all keys.
  CHECK(names(indexer + loss, "--dsa-kernel-backend"));
  CHECK(names(indexer + loss + kernels, "scores of all keys"));
  CHECK(names(indexer + sparse + kernels, "without a loss"));
  CHECK(names(indexer + sparse + kernels + " --dsa-indexer-loss-coeff 0.0", "without a loss"));
  CHECK(names(indexer + sparse + kernels + " --dsa-indexer-loss-coeff 0e-3", "without a loss"));
  CHECK(names(indexer + sparse + kernels + " --dsa-indexer-loss-coeff x1", "not a number"));
  CHECK(names(indexer + loss + sparse + kernels + " --dsa-indexer-topk-freq 4",
              "another layer's indexer"));
  CHECK(
      names(" --experimental-attention-variant dsa --dsa-indexer-topk 8" + loss + sparse + kernels,
            "--dsa-indexer-n-heads"));
  CHECK(names(" --experimental-attention-variant gdn2 --linear-attention-freq 4", "gdn2"));
}

TEST_CASE("a Megatron-LM script has the indexer of its model") {
  const ExportedConfig deepseek = exported_model("megatron-lm", "deepseek-v3.2");
  const ExportedConfig glm = exported_model("megatron-lm", "glm-5");
  for (const char* option : {"dsa-indexer-rope-interleaved", "no-dsa-indexer-rotate-activation"}) {
    INFO(option);
    CHECK(writes(glm, option));
    CHECK_FALSE(writes(deepseek, option));
  }
  CHECK(writes(glm, "dsa-indexer-k-norm-epsilon 1e-06"));
}

TEST_CASE("a Megatron-LM script says which arithmetic its model has") {
  const Result<ImportedConfig> read = import_config(
      {{"train.sh",
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 6 --hidden-size 512 \\\n"
        "  --num-attention-heads 8 --seq-length 64 --micro-batch-size 1 --global-batch-size 8 \\\n"
        "  --max-position-embeddings 64 --vocab-size 1000 --position-embedding-type rope \\\n"
        "  --rotary-base 500000 --rotary-percent 0.5 --use-rope-scaling --norm-epsilon 1e-6 \\\n"
        "  --window-size '(31, 0)' --window-attn-skip-freq '([1]*2+[0]*1)*2' --mtp-num-layers 1 "
        "\\\n"
        "  --apply-layernorm-1p --num-experts 4 --moe-router-score-function sigmoid --bf16\n"}},
      GivenRun{});
  INFO((read ? "" : read.error().message()));
  REQUIRE(read);
  const ModelSpec& model = read->config.model;
  REQUIRE(model.constants);
  CHECK(model.constants->norm_epsilon == 1e-6);
  CHECK(model.constants->rope.theta == 500'000);
  CHECK(model.constants->rope.rotated_part == 0.5);
  CHECK(model.constants->rope.scaling == RopeScaling::llama3);
  CHECK(model.constants->rope.factor == 8);
  CHECK(model.constants->rope.original_positions == 8192);
  CHECK(model.constants->other_arithmetic.size() == 1);
  CHECK(model.sliding_window == 32);
  CHECK(model.windowed_layers == 4);
  CHECK(model.prediction_modules == 1);
  CHECK(model.moe.router_score == RouterScore::sigmoid);
  CHECK(model.moe.expert_bias);  // Megatron-LM's default
  CHECK(model.moe.router_bias);
}

}  // namespace
}  // namespace echelon
