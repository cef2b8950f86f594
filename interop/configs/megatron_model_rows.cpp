// Megatron-LM's options that describe the model.
#include <fmt/format.h>

#include <algorithm>

#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using M = ModelSpec;
using X = MixtureOfExperts;
using L = LatentAttention;

/// Source: Megatron-LM d98e8a64, megatron/training/arguments.py, validate_args: 4h, or two thirds
/// of it in multiples of 64 with --swiglu.
MaybeValue ffn_width(const ConfigRow& row, const ConfigReading& reading) {
  if (const ConfigEntry* entry = reading.find(row.keys)) {
    const Result<int> width = number_of(reading, *entry);
    if (!width) return width.error();
    return std::optional(ReadValue{std::to_string(*width), Origin::found, reading.place(*entry)});
  }
  const std::int64_t hidden = reading.config.model.hidden;
  if (hidden <= 0) return std::optional<ReadValue>{};
  const bool gated = reading.config.model.gated_mlp;
  return std::optional(
      derived(gated ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden,
              gated ? "8/3 of the hidden size, in multiples of 64" : "4 times the hidden size"));
}

void write_kv_heads(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.model.kv_heads == config.model.heads) return;
  out.set(row.keys[0], scalar("true"));
  write_number(out, row.keys[1], config.model.kv_heads);
}

MaybeValue read_kv_heads(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* grouped = reading.find(row.keys[0]);
  const ConfigEntry* groups = reading.find(row.keys[1]);
  if (grouped != nullptr && groups != nullptr) {
    const Result<int> heads = number_of(reading, *groups);
    if (!heads) return heads.error();
    return std::optional(ReadValue{std::to_string(*heads), Origin::found, reading.place(*groups)});
  }
  if (reading.config.model.heads <= 0) return std::optional<ReadValue>{};
  return std::optional(derived(reading.config.model.heads, "one for each attention head"));
}

/// The padded one is in arguments that a run printed, where the tokenizer brings the vocabulary.
MaybeValue read_vocabulary(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr) return std::optional<ReadValue>{};
  return std::optional(ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
}

/// A width of latent attention, which is off without its switch. Keys: switch, width.
template <auto member, int width_by_default>
ConfigRow latent_row(std::string_view key) {
  return computed(
      member, {"multi-latent-attention", key},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        if (!config.model.latent()) return;
        out.set(row.keys[0], scalar("true"));
        if (config.model.mla.*member > 0) write_number(out, row.keys[1], config.model.mla.*member);
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        if (reading.find(row.keys[0]) == nullptr) {
          return std::optional(ReadValue{"0", Origin::assumed, "no --multi-latent-attention"});
        }
        const Result<std::optional<int>> width = number_at(reading, row.keys[1]);
        if (!width) return width.error();
        if (!*width) {
          return std::optional(
              ReadValue{std::to_string(width_by_default), Origin::assumed, "the default"});
        }
        return std::optional(ReadValue{std::to_string(**width), Origin::found,
                                       reading.place(*reading.find(row.keys[1]))});
      });
}

/// In a hybrid model the pattern's E layers have them.
MaybeValue read_experts(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys[0]);
  const std::string& pattern = reading.config.model.layer_pattern;
  const bool listed = pattern.find('E') != std::string::npos;
  if (listed && entry == nullptr) {
    return input_error(reading.document.name, "layers E of a pattern without --num-experts",
                       "the number of experts of such a layer");
  }
  if (entry != nullptr && !pattern.empty() && !listed) {
    return input_error(reading.place(*entry), "experts, and a pattern of layers without E",
                       "E for the layers with experts, or no --num-experts");
  }
  if (entry == nullptr) return std::optional(assumed("0"));
  return std::optional(ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
}

/// Without the option the width of dense layers. Source: Megatron-LM core_v0.16.1,
/// megatron/core/transformer/transformer_config.py:1054.
ConfigRow expert_width_row() {
  ConfigRow row = plain(&X::expert_ffn_hidden, {"moe-ffn-hidden-size"}, "0");
  row.write = [](const ConfigRow& self, const RunConfig& config, ConfigDocument& out) {
    const int width = config.model.moe.expert_ffn_hidden;
    if (width > 0) write_number(out, self.keys[0], width);
  };
  row.read = [](const ConfigRow& self, const ConfigReading& reading) -> MaybeValue {
    const M& model = reading.config.model;
    const bool usual = model.moe.experts > 0 && reading.find(self.keys[0]) == nullptr;
    if (usual) return std::optional(derived(model.ffn_hidden, "the width of dense layers"));
    return found_or(reading, self.keys[0], "0");
  };
  return row;
}

MaybeValue experts_per_token(const ConfigRow& row, const ConfigReading& reading) {
  if (reading.config.model.moe.experts == 0) return std::optional(derived(0, "a dense model"));
  const Result<std::optional<int>> stated = number_at(reading, row.keys[0]);
  if (!stated) return stated.error();
  return std::optional(derived(stated->value_or(2), "--moe-router-topk, by default 2"));
}

// Biases. --disable-bias-linear takes all away; without it every linear layer, expert and router
// has one.

bool has_biases(const M& model) {
  return model.attention_output_bias || model.mlp_bias || model.moe.expert_bias;
}

/// A bias that linear layers have or have not.
ReadValue bias_of(const ConfigReading& reading, bool on) {
  const ConfigEntry* off = reading.find("disable-bias-linear");
  const std::string value = on ? "true" : "false";
  if (off == nullptr) return assumed(value, "the default, without --disable-bias-linear");
  return {value, Origin::found, reading.place(*off)};
}

ConfigRow biases_row() {
  return computed(
      &M::attention_output_bias, {"disable-bias-linear"},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        if (!has_biases(config.model)) out.set(row.keys[0], scalar("true"));
      },
      [](const ConfigRow&, const ConfigReading& reading) -> MaybeValue {
        return std::optional(bias_of(reading, megatron_has_biases(reading)));
      });
}

/// Of dense layers and shared experts.
ConfigRow mlp_bias_row() {
  return computed(&M::mlp_bias, {"disable-bias-linear"}, nullptr,
                  [](const ConfigRow&, const ConfigReading& reading) -> MaybeValue {
                    const M& model = reading.config.model;
                    const bool none = model.moe.experts > 0 && model.moe.shared_ffn_hidden == 0 &&
                                      model.moe_layers() == model.layers;
                    return std::optional(bias_of(reading, megatron_has_biases(reading) && !none));
                  });
}

/// --add-qkv-bias adds these again.
ConfigRow qkv_bias_row() {
  ConfigRow row =
      choice(&M::qkv_bias, {{"true", {{"disable-bias-linear", "true"}, {"add-qkv-bias", "true"}}},
                            {"true", {{"add-qkv-bias", "true"}}},
                            {"false", {{"disable-bias-linear", "true"}}},
                            {"true", {}}});
  row.keys = {"add-qkv-bias"};
  row.write = [](const ConfigRow& self, const RunConfig& config, ConfigDocument& out) {
    if (config.model.qkv_bias && !has_biases(config.model)) out.set(self.keys[0], scalar("true"));
  };
  return row;
}

/// GPT-OSS: experts with biases, whose gate and up projection are bounded.
ConfigRow expert_bias_row() {
  return computed(
      &X::expert_bias,
      {"glu-linear-offset", "activation-func-clamp-value", "no-bias-dropout-fusion"},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        if (!config.model.moe.expert_bias) return;
        out.set(row.keys[0], scalar("1.0"));
        out.set(row.keys[1], scalar("7.0"));
        out.set(row.keys[2], scalar("true"));  // which grouped GEMMs with biases ask for
      },
      [](const ConfigRow&, const ConfigReading& reading) -> MaybeValue {
        if (reading.config.model.moe.experts == 0) return std::optional<ReadValue>{};
        return std::optional(bias_of(reading, megatron_has_biases(reading)));
      });
}

/// Of gated MLPs it has SwiGLU, and GPT-OSS's.
ConfigRow gated_row() {
  ConfigRow row =
      choice(&M::gated_mlp,
             {{"true", {{"swiglu", "true"}}}, {"true", {{"quick-geglu", "true"}}}, {"false", {}}});
  row.write = [](const ConfigRow&, const RunConfig& config, ConfigDocument& out) {
    if (!config.model.gated_mlp) return;
    out.set(config.model.moe.expert_bias ? "quick-geglu" : "swiglu", scalar("true"));
  };
  return row;
}

ConfigRow activation_row() {
  ConfigRow row = choice(&M::activation, {{"silu", {{"swiglu", "true"}}},
                                          {"silu", {{"quick-geglu", "true"}}},
                                          {"squared_relu", {{"squared-relu", "true"}}},
                                          {"gelu", {}}});
  row.write = [](const ConfigRow&, const RunConfig& config, ConfigDocument& out) {
    const bool squared = config.model.activation == Activation::squared_relu;
    if (squared && !config.model.gated_mlp) out.set("squared-relu", scalar("true"));
  };
  return row;
}

/// YaRN of ordinary attention is a kind of position there.
ConfigRow position_row() {
  ConfigRow row =
      choice(&M::position, {{"rope", {{"position-embedding-type", "rope"}}},
                            {"rope", {{"use-rotary-position-embeddings", "true"}}},
                            {"none", {{"position-embedding-type", "none"}}},
                            {"rope", {{"position-embedding-type", "yarn"}}},
                            {"learned", {{"position-embedding-type", "learned_absolute"}}},
                            {"learned", {}}});
  row.keys = {"position-embedding-type"};
  row.write = [](const ConfigRow& self, const RunConfig& config, ConfigDocument& out) {
    const M& model = config.model;
    const bool yarn =
        !model.latent() && model.constants && model.constants->rope.scaling == RopeScaling::yarn;
    switch (model.position) {
      case PositionEmbedding::rope: out.set(self.keys[0], scalar(yarn ? "yarn" : "rope")); break;
      case PositionEmbedding::none: out.set(self.keys[0], scalar("none")); break;
      case PositionEmbedding::learned: out.set(self.keys[0], scalar("learned_absolute")); break;
      case PositionEmbedding::alibi: break;  // the comparison finds it
    }
  };
  return row;
}

constexpr const char* kGainsFromOne = "gains of norms counted from one";

ConfigRow other_arithmetic_row() {
  return computed(
      &ModelConstants::other_arithmetic, {"apply-layernorm-1p"},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        if (!config.model.constants) return;
        const auto& others = config.model.constants->other_arithmetic;
        if (std::ranges::find(others, kGainsFromOne) != others.end()) {
          out.set(row.keys[0], scalar("true"));
        }
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        const ConfigEntry* on = reading.find(row.keys[0]);
        if (on == nullptr) return std::optional<ReadValue>{};
        return std::optional(ReadValue{kGainsFromOne, Origin::found, reading.place(*on)});
      });
}

/// Latent attention has widths of its own; without the option validate_args demands heads that
/// divide the hidden size, also of latent attention. Source: Megatron-LM core_v0.16.1,
/// megatron/training/arguments.py:813; core_v0.19.0, :1291; d98e8a64, :1331.
void write_kv_channels(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const ModelSpec& model = config.model;
  const bool divides = model.heads > 0 && model.hidden % model.heads == 0;
  if (!model.latent() || !divides) write_number(out, row.keys[0], model.head_dim);
}

}  // namespace

std::vector<ConfigRow> megatron_model_rows() {
  std::vector<ConfigRow> rows = megatron_layer_rows();
  const std::vector<ConfigRow> others = {
      plain(&M::hidden, {"hidden-size"}),
      plain(&M::heads, {"num-attention-heads"}),
      computed(&M::kv_heads, {"group-query-attention", "num-query-groups"}, write_kv_heads,
               read_kv_heads),
      gated_row(),
      activation_row(),
      computed(
          &M::ffn_hidden, {"ffn-hidden-size"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            write_number(out, row.keys[0], c.model.ffn_hidden);
          },
          ffn_width),
      computed(
          &M::vocab, {"vocab-size", "padded-vocab-size"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            write_number(out, row.keys[0], c.model.vocab);
          },
          read_vocabulary),
      [] {
        ConfigRow row = plain(&M::max_positions, {"max-position-embeddings"}, "0");
        row.write = write_context;
        return row;
      }(),
      choice(&M::normalization, {{"rms_norm", {{"normalization", "RMSNorm"}}},
                                 {"layer_norm", {}},
                                 {"layer_norm", {{"normalization", "LayerNorm"}}}}),
      position_row(),
      choice(&M::tied_embeddings,
             {{"false", {{"untie-embeddings-and-output-weights", "true"}}}, {"true", {}}}),
      biases_row(),
      qkv_bias_row(),
      plain(&ModelConstants::norm_epsilon, {"norm-epsilon"}, "1e-05"),
      other_arithmetic_row(),
      plain(&M::hidden_dropout, {"hidden-dropout"}, "0.1"),
      plain(&M::attention_dropout, {"attention-dropout"}, "0.1"),
      // Without grouped GEMMs the experts of a rank would run one after the other, and without
      // fused kernels tokens would be permuted by several. The published runs have both.
      computed(
          &X::experts, {"num-experts", "moe-grouped-gemm", "moe-permute-fusion"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (c.model.moe.experts == 0) return;
            write_number(out, row.keys[0], c.model.moe.experts);
            for (const std::size_t i : {1, 2}) out.set(row.keys[i], scalar("true"));
          },
          read_experts),
      computed(
          &X::experts_per_token, {"moe-router-topk"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (c.model.moe.experts > 0) {
              write_number(out, row.keys[0], c.model.moe.experts_per_token);
            }
          },
          experts_per_token),
      expert_width_row(),
      plain(&X::latent_hidden, {"moe-latent-size"}, "0"),
      plain(&X::shared_ffn_hidden, {"moe-shared-expert-intermediate-size"}, "0"),
      computed(&X::first_dense_layers, {"moe-layer-freq"}, write_moe_layers, read_first_dense),
      computed(&X::every, {"moe-layer-freq"}, nullptr, read_every),
      mlp_bias_row(),
      expert_bias_row(),
      choice(&X::shared_expert_gate,
             {{"true", {{"moe-shared-expert-gate", "true"}}}, {"false", {}}}),
      latent_row<&L::kv_lora_rank, 32>("kv-lora-rank"),
      latent_row<&L::q_lora_rank, 0>("q-lora-rank"),
      latent_row<&L::qk_nope_head_dim, 128>("qk-head-dim"),
      latent_row<&L::qk_rope_head_dim, 64>("qk-pos-emb-head-dim"),
      latent_row<&L::v_head_dim, 128>("v-head-dim"),
      computed(&M::head_dim, {"kv-channels"}, write_kv_channels, head_dim_of_heads),
      megatron_qk_norm_row(),
  };
  rows.insert(rows.end(), others.begin(), others.end());
  for (std::vector<ConfigRow> part : {megatron_mamba_rows(), megatron_router_rows(),
                                      megatron_attention_rows(), megatron_rotary_rows()}) {
    for (ConfigRow& row : part) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace echelon
