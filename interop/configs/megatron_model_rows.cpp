// Megatron-LM's options that describe the model.
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

/// "([0]*3+[1]*58)" or a number: every so many layers.
void write_moe_layers(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const X& moe = config.model.moe;
  if (moe.experts == 0 || (moe.first_dense_layers == 0 && moe.every == 1)) return;
  std::string text = "([0]*" + std::to_string(moe.first_dense_layers) + "+[1]*" +
                     std::to_string(config.model.layers - moe.first_dense_layers) + ")";
  if (moe.first_dense_layers == 0) text = std::to_string(moe.every);
  out.set(row.keys[0], quoted(text));
}

MaybeValue read_first_dense(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr) return std::optional(ReadValue{"0", Origin::assumed, "the default"});
  std::string text = entry->value.joined();
  int dense = 0;
  const std::size_t zeros = text.find("[0]*");
  if (zeros != std::string::npos) {
    for (std::size_t i = zeros + 4; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      dense = std::min(10 * dense + (text[i] - '0'), 100'000);
    }
  }
  return std::optional(ReadValue{std::to_string(dense), Origin::found, reading.place(*entry)});
}

MaybeValue read_every(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr || entry->value.first().text.find('[') != std::string::npos) {
    return std::optional(ReadValue{"1", Origin::assumed, "the default"});
  }
  const Result<int> every = number_of(reading, *entry);
  if (!every) return every.error();
  return std::optional(ReadValue{std::to_string(*every), Origin::found, reading.place(*entry)});
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

MaybeValue experts_per_token(const ConfigRow& row, const ConfigReading& reading) {
  if (reading.config.model.moe.experts == 0) return std::optional(derived(0, "a dense model"));
  const Result<std::optional<int>> stated = number_at(reading, row.keys[0]);
  if (!stated) return stated.error();
  return std::optional(derived(stated->value_or(2), "--moe-router-topk, by default 2"));
}

/// --disable-bias-linear takes all biases away, --add-qkv-bias adds these again.
ConfigRow qkv_bias_row() {
  ConfigRow row =
      choice(&M::qkv_bias, {{"true", {{"disable-bias-linear", "true"}, {"add-qkv-bias", "true"}}},
                            {"true", {{"add-qkv-bias", "true"}}},
                            {"false", {{"disable-bias-linear", "true"}}},
                            {"true", {}}});
  row.keys = {"add-qkv-bias"};
  row.write = [](const ConfigRow& self, const RunConfig& config, ConfigDocument& out) {
    if (config.model.qkv_bias && !config.model.mlp_bias) out.set(self.keys[0], scalar("true"));
  };
  return row;
}

}  // namespace

std::vector<ConfigRow> megatron_model_rows() {
  return {
      plain(&M::layers, {"num-layers"}),
      plain(&M::hidden, {"hidden-size"}),
      plain(&M::heads, {"num-attention-heads"}),
      computed(&M::kv_heads, {"group-query-attention", "num-query-groups"}, write_kv_heads,
               read_kv_heads),
      choice(&M::gated_mlp, {{"true", {{"swiglu", "true"}}}, {"false", {}}}),
      choice(&M::activation, {{"silu", {{"swiglu", "true"}}},
                              {"squared_relu", {{"squared-relu", "true"}}},
                              {"gelu", {}}}),
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
      plain(&M::max_positions, {"max-position-embeddings"}, "0"),
      choice(&M::normalization, {{"rms_norm", {{"normalization", "RMSNorm"}}},
                                 {"layer_norm", {}},
                                 {"layer_norm", {{"normalization", "LayerNorm"}}}}),
      choice(&M::position, {{"rope", {{"position-embedding-type", "rope"}}},
                            {"rope", {{"use-rotary-position-embeddings", "true"}}},
                            {"none", {{"position-embedding-type", "none"}}},
                            {"rope", {{"position-embedding-type", "yarn"}}},
                            {"learned", {{"position-embedding-type", "learned_absolute"}}},
                            {"learned", {}}}),
      choice(&M::tied_embeddings,
             {{"false", {{"untie-embeddings-and-output-weights", "true"}}}, {"true", {}}}),
      choice(&M::attention_output_bias,
             {{"false", {{"disable-bias-linear", "true"}}}, {"true", {}}}),
      choice(&M::mlp_bias, {{"false", {{"disable-bias-linear", "true"}}}, {"true", {}}}),
      qkv_bias_row(),
      choice(&M::qk_norm, {{"true", {{"qk-layernorm", "true"}}}, {"false", {}}}),
      plain(&M::hidden_dropout, {"hidden-dropout"}, "0.1"),
      plain(&M::attention_dropout, {"attention-dropout"}, "0.1"),
      // Without grouped GEMMs the experts of a rank would run one after the other.
      computed(
          &X::experts, {"num-experts", "moe-grouped-gemm"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (c.model.moe.experts == 0) return;
            write_number(out, row.keys[0], c.model.moe.experts);
            out.set(row.keys[1], scalar("true"));
          },
          [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
            const ConfigEntry* entry = reading.find(row.keys[0]);
            if (entry == nullptr) {
              return std::optional(ReadValue{"0", Origin::assumed, "the default"});
            }
            return std::optional(
                ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
          }),
      computed(
          &X::experts_per_token, {"moe-router-topk"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (c.model.moe.experts > 0) {
              write_number(out, row.keys[0], c.model.moe.experts_per_token);
            }
          },
          experts_per_token),
      plain(&X::expert_ffn_hidden, {"moe-ffn-hidden-size"}, "0"),
      plain(&X::shared_ffn_hidden, {"moe-shared-expert-intermediate-size"}, "0"),
      computed(&X::first_dense_layers, {"moe-layer-freq"}, write_moe_layers, read_first_dense),
      computed(&X::every, {"moe-layer-freq"}, nullptr, read_every),
      choice(&X::router_bias,
             {{"true", {{"moe-router-enable-expert-bias", "true"}}}, {"false", {}}}),
      choice(&X::shared_expert_gate,
             {{"true", {{"moe-shared-expert-gate", "true"}}}, {"false", {}}}),
      latent_row<&L::kv_lora_rank, 32>("kv-lora-rank"),
      latent_row<&L::q_lora_rank, 0>("q-lora-rank"),
      latent_row<&L::qk_nope_head_dim, 128>("qk-head-dim"),
      latent_row<&L::qk_rope_head_dim, 64>("qk-pos-emb-head-dim"),
      latent_row<&L::v_head_dim, 128>("v-head-dim"),
      computed(
          &M::head_dim, {"kv-channels"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (!c.model.latent()) write_number(out, row.keys[0], c.model.head_dim);
          },
          head_dim_of_heads),
  };
}

}  // namespace echelon
