// Megatron-LM's options of attention: norms, windows, sinks, gated delta nets, sparse attention.
// Sources: Megatron-LM core_v0.16.1 and d98e8a64, megatron/training/arguments.py and
// megatron/core/transformer/transformer_config.py.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using M = ModelSpec;
using D = GatedDeltaNet;
using I = SparseAttention;

/// Layers with the feature: all but every N-th, or those of a list.
MaybeValue read_pattern(const ConfigReading& reading, const ConfigEntry& entry) {
  const int layers = reading.config.model.layers;
  const std::string text = layer_pattern_text(entry);
  if (text.find('[') == std::string::npos) {
    const Result<int> every = parse_int(text, reading.place(entry), 1);
    if (!every) return every.error();
    return std::optional(derived(layers - layers / *every, reading.place(entry)));
  }
  const Result<std::vector<bool>> pattern = parse_layer_pattern(text, reading.place(entry));
  if (!pattern) return pattern.error();
  const std::int64_t with = std::count(pattern->begin(), pattern->end(), true);
  if (with <= layers) return std::optional(derived(with, reading.place(entry)));
  return input_error(reading.place(entry), fmt::format("{} layers", with),
                     fmt::format("at most the model's {}", layers));
}

/// The inverse for `with` of the layers: the last of every N is without, or the last ones are.
std::string pattern_of(int layers, int with) {
  const int without = layers - with;
  for (int every = 2; without > 0 && every <= layers; ++every) {
    if (layers / every == without) return std::to_string(every);
  }
  return fmt::format("([1]*{}+[0]*{})", with, without);
}

// Megatron-LM counts the tokens before the own one.

void write_window(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const M& model = config.model;
  if (model.sliding_window == 0 || model.windowed_layers == 0) return;
  out.set(row.keys[0], scalar(fmt::format("{},0", model.sliding_window - 1)));
  if (model.windowed_layers == model.layers) return;
  out.set(row.keys[1], scalar(pattern_of(model.layers, model.windowed_layers)));
}

MaybeValue read_window(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys[0]);
  if (entry == nullptr) return std::optional(assumed("0"));
  std::string text = entry->value.joined();
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  text = text.substr(0, text.find(','));
  if (text == "-1") return std::optional(derived(0, reading.place(*entry)));
  const Result<int> before = parse_int(text, reading.place(*entry), 0);
  if (!before) return before.error();
  return std::optional(derived(std::int64_t{*before} + 1, reading.place(*entry)));
}

MaybeValue read_windowed_layers(const ConfigRow& row, const ConfigReading& reading) {
  if (reading.config.model.sliding_window == 0) return std::optional(assumed("0"));
  if (const ConfigEntry* skip = reading.find(row.keys[1])) return read_pattern(reading, *skip);
  return std::optional(derived(reading.config.model.layers, "every layer"));
}

constexpr std::string_view kVariant = "experimental-attention-variant";
constexpr std::string_view kSparseVariant = "dsa";

void write_delta_layers(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const M& model = config.model;
  if (model.delta.layers == 0 || model.delta.channel_decay()) return;
  out.set(row.keys[0], scalar("gated_delta_net"));
  out.set(row.keys[1], scalar(pattern_of(model.layers, model.delta.layers)));
}

MaybeValue read_delta_layers(const ConfigRow& row, const ConfigReading& reading) {
  const bool on = says(reading, kVariant, "gated_delta_net") || says(reading, kVariant, "gdn");
  const ConfigEntry* variant = reading.find(kVariant);
  if (variant != nullptr && !on && !says(reading, kVariant, kSparseVariant)) {
    return input_error(reading.place(*variant), in_quotes(printable(variant->value.joined())),
                       "gdn (gated delta nets) or dsa (sparse attention): others have no price");
  }
  const ConfigEntry* layers = reading.find(row.keys[1]);
  if (!on || layers == nullptr) return std::optional(assumed("0"));
  return read_pattern(reading, *layers);
}

template <auto member, int usual>
ConfigRow delta_row(std::string_view key) {
  return computed(
      member, {key},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        if (config.model.delta.layers > 0) {
          write_number(out, row.keys[0], config.model.delta.*member);
        }
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        if (reading.config.model.delta.layers == 0) return std::optional<ReadValue>{};
        return found_or(reading, row.keys[0], std::to_string(usual));
      });
}

constexpr std::string_view kSparseKeys = "dsa-indexer-topk";
constexpr std::string_view kSparseKernels = "dsa-kernel-backend";
constexpr std::string_view kSparseLoss = "dsa-indexer-use-sparse-loss";
constexpr std::string_view kLossFactor = "dsa-indexer-loss-coeff";
constexpr std::string_view kSharing = "dsa-indexer-topk-freq";
constexpr std::string_view kKeyNorm = "dsa-indexer-k-norm-epsilon";
constexpr std::string_view kNegative = "no-dsa-indexer-scoring-relu";
constexpr std::string_view kAlsoNegative = "disable-dsa-indexer-scoring-relu";

/// What is priced of sparse attention: cuDNN's and FlashMLA's kernels, an indexer in every layer,
/// its loss over the chosen keys. Everything else is an error.
Status check_sparse(const ConfigReading& reading) {
  const auto refuse = [&](std::string found, std::string expected) {
    return input_error(reading.document.name, std::move(found), std::move(expected));
  };
  const bool tilelang = says(reading, kSparseKernels, "tilelang");
  if (!says(reading, kSparseKernels, "cudnn")) {
    return refuse(tilelang
                      ? "sparse attention by TileLang's kernels (--dsa-kernel-backend tilelang)"
                      : "sparse attention without fused kernels (--dsa-kernel-backend), which "
                        "keeps a matrix of scores",
                  "--dsa-kernel-backend cudnn: nothing else has a price");
  }
  if (reading.find(kNegative) != nullptr || reading.find(kAlsoNegative) != nullptr) {
    return refuse("negative index scores (--no-dsa-indexer-scoring-relu)",
                  "scores that ReLU bounds, as the kernels of --dsa-kernel-backend cudnn need");
  }
  bool trained = false;
  if (const ConfigEntry* factor = reading.find(kLossFactor)) {
    constexpr double kMost = 1e9;
    const Result<double> number =
        parse_ratio(factor->value.first().text, reading.place(*factor), 0, kMost);
    if (!number) return number.error();
    trained = *number > 0;
  }
  if (!trained || reading.find(kSparseLoss) == nullptr) {
    return refuse(trained ? "an indexer that learns from the scores of all keys"
                          : "an indexer without a loss (--dsa-indexer-loss-coeff)",
                  "--dsa-indexer-use-sparse-loss with a --dsa-indexer-loss-coeff above 0: nothing "
                  "else has a price");
  }
  const Result<std::optional<int>> every = number_at(reading, kSharing);
  if (!every) return every.error();
  if (every->value_or(1) == 1) return Done{};
  return refuse(
      "layers that attend to the keys of another layer's indexer "
      "(--dsa-indexer-topk-freq)",
      "an indexer in every layer; shared keys have no price");
}

void write_sparse(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (!config.model.sparse()) return;
  write_number(out, row.keys[0], config.model.dsa.topk);
  out.set(kVariant, scalar(std::string(kSparseVariant)));
  out.set(kSparseKernels, scalar("cudnn"));
  out.set(kSparseLoss, scalar("true"));
  out.set(kLossFactor, scalar("0.01"));
  out.set(kKeyNorm, scalar("1e-06"));  // as transformers' modules; Megatron-LM's: that of all norms
  out.set("no-rope-fusion", scalar("true"));
}

MaybeValue read_sparse(const ConfigRow& row, const ConfigReading& reading) {
  if (!says(reading, kVariant, kSparseVariant)) return std::optional(assumed("0"));
  if (row.keys[0] == kSparseKeys) {
    if (const Status priced = check_sparse(reading); !priced) return priced.error();
  }
  const ConfigEntry* entry = reading.find(row.keys[0]);
  if (entry == nullptr) {
    return input_error(reading.document.name,
                       fmt::format("--{} {} without --{}", kVariant, kSparseVariant, row.keys[0]),
                       "a whole number: it has no default");
  }
  return std::optional(ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
}

/// Other models have no indexer, whose default would be read.
ConfigRow of_indexer(ConfigRow row) {
  row.read = [](const ConfigRow& self, const ConfigReading& reading) -> MaybeValue {
    if (!reading.config.model.sparse()) return std::optional<ReadValue>{};
    return read_choice(self, reading);
  };
  return row;
}

template <auto member>
ConfigRow indexer_row(std::string_view key) {
  return computed(
      member, {key},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        if (config.model.sparse()) write_number(out, row.keys[0], config.model.dsa.*member);
      },
      read_sparse);
}

}  // namespace

/// The latents of latent attention have norms; Megatron-LM leaves them out without the option.
/// Source: megatron/core/models/gpt/gpt_layer_specs.py, q_layernorm and kv_layernorm.
ConfigRow megatron_qk_norm_row() {
  return computed(
      &M::qk_norm, {"qk-layernorm"},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        const bool on = config.model.qk_norm || config.model.latent();
        if (on) out.set(row.keys[0], scalar("true"));
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        const ConfigEntry* on = reading.find(row.keys[0]);
        if (on == nullptr) return std::optional(assumed("false"));
        if (reading.config.model.latent()) {
          return std::optional(derived("false", reading.place(*on) + ": of the latents"));
        }
        return std::optional(ReadValue{"true", Origin::found, reading.place(*on)});
      });
}

std::vector<ConfigRow> megatron_attention_rows() {
  return {
      choice(&M::attention_output_gate,
             {{"true", {{"attention-output-gate", "true"}}}, {"false", {}}}),
      computed(&M::sliding_window, {"window-size", "window-attn-skip-freq"}, write_window,
               read_window),
      computed(&M::windowed_layers, {"window-size", "window-attn-skip-freq"}, nullptr,
               read_windowed_layers),
      choice(&M::attention_sinks, {{"true", {{"softmax-type", "learnable"}}},
                                   {"false", {}},
                                   {"false", {{"softmax-type", "vanilla"}}}}),
      computed(&I::topk,
               {kSparseKeys, kVariant, kSparseKernels, kSparseLoss, kLossFactor, kSharing, kKeyNorm,
                kNegative, kAlsoNegative},
               write_sparse, read_sparse),
      indexer_row<&I::index_heads>("dsa-indexer-n-heads"),
      indexer_row<&I::index_head_dim>("dsa-indexer-head-dim"),
      choice(&I::rope_interleaved,
             {{"true", {{"dsa-indexer-rope-interleaved", "true"}}}, {"false", {}}}),
      of_indexer(
          choice(&I::hadamard, {{"false", {{"no-dsa-indexer-rotate-activation", "true"}}},
                                {"false", {{"disable-dsa-indexer-rotate-activation", "true"}}},
                                {"true", {}}})),
      computed(&D::layers, {kVariant, "linear-attention-freq"}, write_delta_layers,
               read_delta_layers),
      delta_row<&D::key_heads, 16>("linear-num-key-heads"),
      delta_row<&D::value_heads, 32>("linear-num-value-heads"),
      delta_row<&D::key_head_dim, 128>("linear-key-head-dim"),
      delta_row<&D::value_head_dim, 128>("linear-value-head-dim"),
      delta_row<&D::conv_kernel, 4>("linear-conv-kernel-dim"),
  };
}

}  // namespace echelon
