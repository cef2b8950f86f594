// LLM Foundry's model: MPT, with the parts that its configuration can exchange.
// Source of all rows: LLM Foundry 8c8dd48f, llmfoundry/models/mpt/configuration_mpt.py and
// llmfoundry/models/utils/config_defaults.py.
#include <fmt/format.h>

#include <cmath>

#include "core/base/parse_quantity.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using M = ModelSpec;

constexpr std::string_view kMultihead = "multihead_attention";
constexpr std::string_view kMultiquery = "multiquery_attention";
constexpr std::string_view kGrouped = "grouped_query_attention";

/// Keys: kind of attention; key/value heads, of grouped attention alone. Source:
/// llmfoundry/models/layers/attention.py:955, 1016.
void write_mpt_kv_heads(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const M& model = config.model;
  if (model.kv_heads == model.heads) return;
  const bool one = model.kv_heads == 1;
  out.set(row.keys[0], scalar(std::string(one ? kMultiquery : kGrouped)));
  if (!one) write_number(out, row.keys[1], model.kv_heads);
}

MaybeValue read_mpt_kv_heads(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* kind = reading.find(row.keys[0]);
  const std::string text = kind == nullptr ? std::string(kMultihead) : kind->value.text;
  if (text == kMultiquery) {
    return std::optional(ReadValue{"1", Origin::found, reading.place(*kind)});
  }
  const ConfigEntry* heads = reading.find(row.keys[1]);
  if (text == kGrouped && heads != nullptr) {
    return std::optional(ReadValue{heads->value.text, Origin::found, reading.place(*heads)});
  }
  if (text == kMultihead && heads == nullptr) {
    return std::optional(derived(reading.config.model.heads, "one for each attention head"));
  }
  const ConfigEntry& wrong = text == kMultihead ? *heads : *kind;
  return input_error(
      reading.place(wrong), text + (heads == nullptr ? " without" : " with") + " kv_n_heads",
      fmt::format("{}, {}, or {} with kv_n_heads", kMultihead, kMultiquery, kGrouped));
}

/// Keys: ratio to the hidden size; the width itself, which is taken first. Source:
/// llmfoundry/models/layers/ffn.py:97, resolve_ffn_hidden_size.
void write_mpt_ffn_width(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const M& model = config.model;
  const bool whole = model.hidden > 0 && model.ffn_hidden % model.hidden == 0;
  if (whole) {
    write_number(out, row.keys[0], model.ffn_hidden / model.hidden);
  } else {
    write_number(out, row.keys[1], model.ffn_hidden);
  }
}

MaybeValue read_mpt_ffn_width(const ConfigRow& row, const ConfigReading& reading) {
  if (const ConfigEntry* width = reading.find(row.keys[1])) {
    return std::optional(ReadValue{width->value.text, Origin::found, reading.place(*width)});
  }
  constexpr double kUsual = 4, kMost = 1000;
  const ConfigEntry* entry = reading.find(row.keys[0]);
  const Result<double> ratio =
      entry == nullptr ? Result<double>(kUsual)
                       : parse_ratio(entry->value.text, reading.place(*entry), 0, kMost);
  if (!ratio) return ratio.error();
  const double width = reading.config.model.hidden * *ratio;
  if (width != std::floor(width)) {
    return input_error(reading.place(*entry),
                       fmt::format("{} x {}", reading.config.model.hidden, *ratio),
                       "an expansion_ratio whose product with d_model is a whole number");
  }
  return std::optional(derived(static_cast<std::int64_t>(width), "expansion_ratio x d_model"));
}

/// mptmlp, mptglu or te_ln_mlp; experts are not read. Source: llmfoundry/models/layers/ffn.py:588.
MaybeValue read_mpt_gated(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* type = reading.find("model.ffn_config.ffn_type");
  const std::string text = type == nullptr ? "" : type->value.text;
  if (text == "mb_moe" || text == "mb_dmoe" || text == "torch_dmoe") {
    return input_error(reading.place(*type), text + ", whose experts are not read",
                       "mptmlp or mptglu", "--model takes its place");
  }
  return read_choice(row, reading);
}

/// A bias of queries, keys and values where it differs from the others.
void write_mpt_qkv_bias(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const M& model = config.model;
  if (model.qkv_bias == model.mlp_bias) return;
  out.set(row.keys[0], scalar(model.qkv_bias ? "true" : "false"));
}

MaybeValue read_mpt_qkv_bias(const ConfigRow& row, const ConfigReading& reading) {
  if (const ConfigEntry* own = reading.find(row.keys[0])) {
    return std::optional(ReadValue{own->value.text, Origin::found, reading.place(*own)});
  }
  return std::optional(
      derived(says(reading, row.keys[1], "true") ? "false" : "true", "no_bias, as of all layers"));
}

/// A query attends to so many tokens before it, and to itself: the window is one larger. Source:
/// llmfoundry/models/layers/attention.py:430.
void write_sliding_window(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const M& model = config.model;
  if (model.sliding_window == 0 || model.windowed_layers < model.layers) return;
  write_number(out, row.keys[0], model.sliding_window - 1);
}

MaybeValue read_sliding_window(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys[0]);
  if (entry == nullptr || entry->value.text == "-1") {
    return std::optional(assumed("0", "no sliding_window_size"));
  }
  const Result<int> size = number_of(reading, *entry);
  if (!size) return size.error();
  return std::optional(derived(std::int64_t{*size} + 1, reading.place(*entry) + ", and itself"));
}

MaybeValue all_layers_windowed(const ConfigRow&, const ConfigReading& reading) {
  const M& model = reading.config.model;
  return std::optional(derived(model.sliding_window > 0 ? model.layers : 0, "sliding_window_size"));
}

/// Written where the head is not hidden / heads wide.
void write_mpt_head_width(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const M& model = config.model;
  if (std::int64_t{model.head_dim} * model.heads == model.hidden) return;
  write_number(out, row.keys[0], model.head_dim);
}

std::vector<ConfigRow> mpt_block_rows() {
  constexpr std::string_view kNorm = "model.norm_type";
  constexpr std::string_view kActivation = "model.ffn_config.ffn_act_fn.name";
  constexpr std::string_view kFfn = "model.ffn_config.ffn_type";
  ConfigRow gated = choice(&M::gated_mlp, {{"true", {{kFfn, "mptglu"}}},
                                           {"false", {}},
                                           {"false", {{kFfn, "mptmlp"}}},
                                           {"false", {{kFfn, "te_ln_mlp"}}}});
  gated.read = read_mpt_gated;
  return {
      choice(&M::normalization, {{"rms_norm", {{kNorm, "low_precision_rmsnorm"}}},
                                 {"rms_norm", {{kNorm, "rmsnorm"}}},
                                 {"rms_norm", {{kNorm, "triton_rmsnorm"}}},
                                 {"layer_norm", {}},
                                 {"layer_norm", {{kNorm, "low_precision_layernorm"}}},
                                 {"layer_norm", {{kNorm, "layernorm"}}}}),
      plain(&ModelConstants::norm_epsilon, {"model.norm_eps"}, "1e-05"),
      choice(&M::activation, {{"gelu", {}},
                              {"gelu", {{kActivation, "gelu"}}},
                              {"relu", {{kActivation, "relu"}}},
                              {"silu", {{kActivation, "silu"}}}}),
      std::move(gated),
      choice(&M::tied_embeddings, {{"false", {{"model.tie_word_embeddings", "false"}}},
                                   {"true", {}},
                                   {"true", {{"model.tie_word_embeddings", "true"}}}}),
      choice(&M::mlp_bias, {{"false", {{"model.no_bias", "true"}}}, {"true", {}}}),
      choice(&M::attention_output_bias, {{"false", {{"model.no_bias", "true"}}}, {"true", {}}}),
      computed(&M::qkv_bias, {"model.attention_bias", "model.no_bias"}, write_mpt_qkv_bias,
               read_mpt_qkv_bias),
  };
}

}  // namespace

std::vector<ConfigRow> llm_foundry_model_rows() {
  std::vector<ConfigRow> rows = {
      plain(&M::layers, {"model.n_layers"}),
      plain(&M::hidden, {"model.d_model"}),
      plain(&M::heads, {"model.n_heads"}),
      computed(&M::kv_heads, {"model.attn_config.attn_type", "model.attn_config.kv_n_heads"},
               write_mpt_kv_heads, read_mpt_kv_heads),
      computed(&M::ffn_hidden, {"model.expansion_ratio", "model.ffn_config.ffn_hidden_size"},
               write_mpt_ffn_width, read_mpt_ffn_width),
      plain(&M::vocab, {"model.vocab_size"}),
      computed(&M::max_positions, {"model.max_seq_len"}, write_context,
               [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
                 return found_or(reading, row.keys[0], "2048");
               }),
      plain(&M::hidden_dropout, {"model.resid_pdrop"}, "0"),
      plain(&M::attention_dropout, {"model.attn_config.attn_pdrop"}, "0"),
      choice(&M::position, {{"alibi", {{"model.attn_config.alibi", "true"}}},
                            {"rope", {{"model.attn_config.rope", "true"}}},
                            {"none", {{"model.learned_pos_emb", "false"}}},
                            {"learned", {}},
                            {"learned", {{"model.learned_pos_emb", "true"}}}}),
      plain(&RotaryEmbedding::theta, {"model.attn_config.rope_theta"}, "10000"),
      choice(&M::qk_norm, {{"true", {{"model.attn_config.qk_gn", "true"}}}, {"false", {}}}),
      choice(&M::qk_norm_all_heads,
             {{"true", {{"model.attn_config.qk_ln", "true"}}}, {"false", {}}}),
      computed(&M::sliding_window, {"model.attn_config.sliding_window_size"}, write_sliding_window,
               read_sliding_window),
      follows(&M::windowed_layers, all_layers_windowed),
      computed(&M::head_dim, {"model.head_dim"}, write_mpt_head_width, head_dim_of_heads),
  };
  for (ConfigRow& row : mpt_block_rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace echelon
