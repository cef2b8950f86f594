// LLM Foundry's model, MPT: the parts that its configuration exchanges are read and written.
// Source: LLM Foundry 8c8dd48f, llmfoundry/models/mpt/configuration_mpt.py.
#include <algorithm>
#include <string>

#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// 16 layers of 2,048 with 16 heads; `model` has further lines of the section, `others` of the
/// file.
Result<ImportedConfig> read_mpt(const std::string& model, const std::string& others = "") {
  GivenRun given;
  given.gpus = 8;
  return import_config(
      {{"mpt.yaml",
        "max_seq_len: 2048\nglobal_train_batch_size: 64\ndevice_train_microbatch_size: 4\n"
        "precision: amp_bf16\n" +
            others +
            "model:\n  name: mpt_causal_lm\n  d_model: 2048\n  n_heads: 16\n"
            "  n_layers: 16\n  vocab_size: 50368\n" +
            model}},
      given);
}

ModelSpec model_of(const std::string& model) {
  const Result<ImportedConfig> read = read_mpt(model);
  INFO((read ? "" : read.error().message()));
  REQUIRE(read);
  return read->config.model;
}

std::string refused_mpt(const std::string& model) {
  const Result<ImportedConfig> read = read_mpt(model);
  return read ? "no error" : read.error().message();
}

TEST_CASE("MPT without further settings has GELU, LayerNorm, biases and tied embeddings") {
  const ModelSpec usual = model_of("");
  CHECK(usual.ffn_hidden == 8192);
  CHECK(usual.kv_heads == 16);
  CHECK(usual.normalization == Normalization::layer_norm);
  CHECK(usual.activation == Activation::gelu);
  CHECK(usual.tied_embeddings);
  CHECK((usual.qkv_bias && usual.mlp_bias && usual.attention_output_bias));
  CHECK_FALSE(usual.gated_mlp);
  CHECK(usual.sliding_window == 0);
}

TEST_CASE("the parts of MPT that a file exchanges are read") {
  const ModelSpec other = model_of(
      "  no_bias: true\n  norm_type: rmsnorm\n  norm_eps: 1.0e-6\n  tie_word_embeddings: false\n"
      "  ffn_config:\n    ffn_type: mptglu\n    ffn_hidden_size: 5632\n"
      "    ffn_act_fn:\n      name: silu\n"
      "  attn_config:\n    attn_type: grouped_query_attention\n    kv_n_heads: 4\n    rope: true\n"
      "    sliding_window_size: 1023\n    qk_gn: true\n");
  CHECK(other.gated_mlp);
  CHECK(other.ffn_hidden == 5632);
  CHECK(other.activation == Activation::silu);
  CHECK(other.normalization == Normalization::rms_norm);
  REQUIRE(other.constants);
  CHECK(other.constants->norm_epsilon == 1e-6);
  CHECK_FALSE(other.tied_embeddings);
  CHECK(other.kv_heads == 4);
  CHECK(other.position == PositionEmbedding::rope);
  CHECK(other.sliding_window == 1024);
  CHECK(other.windowed_layers == 16);
  CHECK(other.qk_norm);
  CHECK_FALSE((other.qkv_bias || other.mlp_bias));
  CHECK(model_of("  attn_config: {attn_type: multiquery_attention}\n").kv_heads == 1);
  CHECK(model_of("  expansion_ratio: 2.75\n").ffn_hidden == 5632);
  const ModelSpec biased = model_of("  no_bias: true\n  attention_bias: true\n");
  CHECK(biased.qkv_bias);
  CHECK_FALSE(biased.mlp_bias);
}

TEST_CASE("what a file of LLM Foundry cannot mean is refused with its place") {
  for (const char* type : {"mb_moe", "mb_dmoe", "torch_dmoe"}) {
    const std::string error = refused_mpt(std::string("  ffn_config: {ffn_type: ") + type + "}\n");
    CHECK(error.find("model.ffn_config.ffn_type") != std::string::npos);
    CHECK(error.find("experts are not read") != std::string::npos);
    CHECK(error.find("--model") != std::string::npos);
  }
  CHECK(refused_mpt("  attn_config: {kv_n_heads: 4}\n").find("grouped_query_attention") !=
        std::string::npos);
  CHECK(refused_mpt("  attn_config: {attn_type: grouped_query_attention}\n").find("kv_n_heads") !=
        std::string::npos);
  CHECK(refused_mpt("  ffn_config: {ffn_act_fn: {name: quick_gelu}}\n").find("gelu, relu, silu") !=
        std::string::npos);
  CHECK(refused_mpt("  norm_type: batchnorm\n").find("layernorm") != std::string::npos);
  CHECK(refused_mpt("  expansion_ratio: 2.6667\n").find("whole number") != std::string::npos);
}

TEST_CASE("attention of LLM Foundry is flash attention over whole sequences unless it says else") {
  const Result<ImportedConfig> usual = read_mpt("");
  REQUIRE(usual);
  CHECK(usual->config.flash_attention);
  CHECK_FALSE(usual->config.packed_documents);
  CHECK(usual->unpriced.empty());
  const Result<ImportedConfig> other =
      read_mpt("  attn_config: {attn_impl: torch, attn_uses_sequence_id: true}\n",
               "fsdp_config: {mixed_precision: PURE}\n");
  REQUIRE(other);
  CHECK_FALSE(other->config.flash_attention);
  CHECK(other->config.packed_documents);
  REQUIRE(other->unpriced.size() == 1);
  CHECK(other->unpriced.front().find("mixed_precision = pure") != std::string::npos);
}

TEST_CASE("layers of several kinds of LLM Foundry are asked for") {
  const Result<ImportedConfig> read =
      read_mpt("  block_overrides: {order: [{name: default}], overrides: {}}\n");
  REQUIRE(read);
  CHECK(std::ranges::any_of(read->asks, [](const std::string& each) {
    return each.starts_with("--model:") && each.find("block_overrides") != std::string::npos;
  }));
}

TEST_CASE("LLM Foundry is given the model's own parts") {
  const ConfigFormat& format = **find_config_format("llm-foundry");
  RunConfig run;
  run.model = *load_model("llama2-7b");
  run.model_name = "llama2-7b";
  run.sequence = 4096;
  run.global_batch = 64;
  run.precision = "bf16:fsdp-fp32-shards";
  run.gpus = run.gpus_per_node = 8;
  run.plan.dp = run.plan.shard_group = 8;
  run.plan.zero = 3;
  run.plan.layers_per_stage = {32};
  run.plan.recompute_layers = {0};
  const ExportedConfig exported = export_config(format, run);
  CAPTURE(exported.text);
  CHECK(exported.lost.empty());
  for (const char* setting :
       {"ffn_type: mptglu", "ffn_hidden_size: 11008", "name: silu", "no_bias: true", "rope: true",
        "norm_type: low_precision_rmsnorm", "tie_word_embeddings: false"}) {
    CHECK(exported.text.find(setting) != std::string::npos);
  }
}

}  // namespace
}  // namespace echelon
