// Megatron-LM's options of rotary positions.
// Sources: Megatron-LM core_v0.16.1 and d98e8a64, megatron/training/arguments.py and
// megatron/core/transformer/transformer_config.py.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/parse_quantity.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using M = ModelSpec;
using R = RotaryEmbedding;

/// The number behind the key; `usual` without one.
Result<double> real_at(const ConfigReading& reading, std::string_view key, double usual) {
  const ConfigEntry* entry = reading.find(key);
  if (entry == nullptr) return usual;
  constexpr double kMost = 1e30;
  return parse_ratio(entry->value.first().text, reading.place(*entry), 0, kMost);
}

std::string number_text(double number) { return fmt::format("{}", number); }

// Rotary positions. A model whose constants are not known has none of these options.

const R* rope_of(const RunConfig& config) {
  const M& model = config.model;
  return model.position == PositionEmbedding::rope && model.constants ? &model.constants->rope
                                                                      : nullptr;
}
bool rotary(const ConfigReading& reading) {
  return reading.config.model.position == PositionEmbedding::rope;
}
R read_rope(const ConfigReading& reading) {
  return reading.config.model.constants ? reading.config.model.constants->rope : R{};
}
bool scaled_by(const ConfigReading& reading, RopeScaling scaling) {
  return rotary(reading) && read_rope(reading).scaling == scaling;
}

/// --rotary-base is a whole number there.
void write_theta(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const R* rope = rope_of(config);
  if (rope == nullptr) return;
  write_number(out, row.keys[0], std::llround(rope->theta));
}

/// Latent attention is extended by YaRN unless told otherwise.
void write_scaling(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const R* rope = rope_of(config);
  if (rope == nullptr) return;
  if (config.model.latent()) {
    const bool yarn = rope->scaling == RopeScaling::yarn;
    out.set(row.keys[1], scalar(yarn ? "yarn" : "rope"));
    if (!yarn) out.set("no-rope-fusion", scalar("true"));  // its kernel has YaRN only
  } else if (rope->scaling == RopeScaling::llama3) {
    out.set(row.keys[0], scalar("true"));
  }
}

MaybeValue read_scaling(const ConfigRow& row, const ConfigReading& reading) {
  if (!rotary(reading)) return std::optional<ReadValue>{};
  if (reading.config.model.latent()) {
    const Result<double> factor = real_at(reading, "rotary-scaling-factor", 1);
    if (!factor) return factor.error();
    const bool yarn = !says(reading, row.keys[1], "rope") && *factor != 1;
    return std::optional(derived(yarn ? "yarn" : "none", "--rope-type, --rotary-scaling-factor"));
  }
  if (says(reading, "position-embedding-type", "yarn")) {
    return std::optional(derived("yarn", "--position-embedding-type yarn"));
  }
  if (const ConfigEntry* scaled = reading.find(row.keys[0])) {
    return std::optional(ReadValue{"llama3", Origin::found, reading.place(*scaled)});
  }
  if (const ConfigEntry* linear = reading.find(row.keys[2])) {
    return std::optional(ReadValue{"linear", Origin::found, reading.place(*linear)});
  }
  return std::optional(assumed("none"));
}

/// Keys: of Llama 3, of YaRN, of linear interpolation.
std::string_view factor_key(const ConfigRow& row, RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::llama3: return row.keys[0];
    case RopeScaling::yarn: return row.keys[1];
    case RopeScaling::linear: return row.keys[2];
    default: return "";
  }
}

void write_factor(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const R* rope = rope_of(config);
  if (rope == nullptr) return;
  const std::string_view key = factor_key(row, rope->scaling);
  if (key.empty()) return;
  const bool whole = rope->scaling == RopeScaling::linear;
  out.set(key,
          scalar(whole ? std::to_string(std::llround(rope->factor)) : number_text(rope->factor)));
}

MaybeValue read_factor(const ConfigRow& row, const ConfigReading& reading) {
  const RopeScaling scaling = read_rope(reading).scaling;
  const std::string_view key = factor_key(row, scaling);
  if (!rotary(reading) || key.empty()) return std::optional<ReadValue>{};
  return found_or(reading, key, scaling == RopeScaling::llama3 ? "8" : "1");
}

/// Fixed in Llama 3's scaling and in latent attention.
MaybeValue read_original(const ConfigRow& row, const ConfigReading& reading) {
  if (scaled_by(reading, RopeScaling::llama3)) return std::optional(assumed("8192", "fixed"));
  if (!scaled_by(reading, RopeScaling::yarn)) return std::optional<ReadValue>{};
  if (reading.config.model.latent()) return std::optional(assumed("4096", "fixed"));
  return found_or(reading, row.keys[0], "4096");
}

template <auto member>
void write_yarn(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const R* rope = rope_of(config);
  if (rope == nullptr || rope->scaling != RopeScaling::yarn || config.model.latent()) return;
  out.set(row.keys[0], scalar(text_of(row.field, config)));
}

template <int usual>
MaybeValue read_yarn(const ConfigRow& row, const ConfigReading& reading) {
  if (!scaled_by(reading, RopeScaling::yarn) || reading.config.model.latent()) {
    return std::optional<ReadValue>{};
  }
  return found_or(reading, row.keys[0], std::to_string(usual));
}

void write_pairs(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const R* rope = rope_of(config);
  if (rope == nullptr || rope->scaling != RopeScaling::yarn || config.model.latent()) return;
  if (!rope->whole_pairs) out.set(row.keys[0], scalar("true"));
}

MaybeValue read_pairs(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* off = reading.find(row.keys[0]);
  if (off == nullptr || !scaled_by(reading, RopeScaling::yarn)) return std::optional<ReadValue>{};
  return std::optional(ReadValue{"false", Origin::found, reading.place(*off)});
}

/// Cosines and sines are multiplied by (0.1·mscale·ln f + 1) / (0.1·all·ln f + 1). Source:
/// megatron/core/models/common/embeddings/yarn_rotary_pos_embedding.py.
double per_mscale(double factor) {
  constexpr double kPerLog = 0.1;
  return factor > 1 ? kPerLog * std::log(factor) : 0;
}

void write_mscale(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const R* rope = rope_of(config);
  if (rope == nullptr || rope->scaling != RopeScaling::yarn || per_mscale(rope->factor) == 0) {
    return;
  }
  const double each = per_mscale(rope->factor);
  const double all = config.model.latent() ? rope->score_mscale : 0;
  const double mscale = (rope->attention_factor * (all * each + 1) - 1) / each;
  out.set(row.keys[0], scalar(fmt::format("{:.12g}", std::max(0.0, mscale))));
  out.set(row.keys[1], scalar(number_text(all)));
}

MaybeValue read_attention_factor(const ConfigRow& row, const ConfigReading& reading) {
  if (!scaled_by(reading, RopeScaling::yarn)) return std::optional<ReadValue>{};
  const Result<double> mscale = real_at(reading, row.keys[0], 1);
  const Result<double> all = real_at(reading, row.keys[1], 0);
  if (!mscale) return mscale.error();
  if (!all) return all.error();
  const double each = per_mscale(read_rope(reading).factor);
  return std::optional(
      derived(number_text((*mscale * each + 1) / (*all * each + 1)), "--mscale, --mscale-all-dim"));
}

MaybeValue read_score_mscale(const ConfigRow& row, const ConfigReading& reading) {
  const bool latent = reading.config.model.latent();
  if (!latent || !scaled_by(reading, RopeScaling::yarn)) return std::optional<ReadValue>{};
  return found_or(reading, row.keys[0], "0");
}

template <const char* usual>
MaybeValue read_rotary(const ConfigRow& row, const ConfigReading& reading) {
  if (!rotary(reading)) return std::optional<ReadValue>{};
  return found_or(reading, row.keys[0], usual);
}
constexpr char kUsualTheta[] = "10000";
constexpr char kWholeHead[] = "1";

}  // namespace

std::vector<ConfigRow> megatron_rotary_rows() {
  return {
      computed(&R::theta, {"rotary-base"}, write_theta, read_rotary<kUsualTheta>),
      computed(
          &R::rotated_part, {"rotary-percent"},
          [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
            const R* rope = rope_of(config);
            if (rope == nullptr || rope->rotated_part == 1) return;
            out.set(row.keys[0], scalar(number_text(rope->rotated_part)));
          },
          read_rotary<kWholeHead>),
      computed(&R::scaling,
               {"use-rope-scaling", "rope-type", "rotary-seq-len-interpolation-factor"},
               write_scaling, read_scaling),
      computed(
          &R::factor,
          {"rope-scaling-factor", "rotary-scaling-factor", "rotary-seq-len-interpolation-factor"},
          write_factor, read_factor),
      computed(&R::original_positions, {"yarn-original-max-position-embeddings"},
               write_yarn<&R::original_positions>, read_original),
      computed(&R::beta_fast, {"yarn-beta-fast"}, write_yarn<&R::beta_fast>, read_yarn<32>),
      computed(&R::beta_slow, {"yarn-beta-slow"}, write_yarn<&R::beta_slow>, read_yarn<1>),
      computed(&R::whole_pairs, {"no-yarn-correction-range-round-to-int"}, write_pairs, read_pairs),
      computed(&R::attention_factor, {"mscale", "mscale-all-dim"}, write_mscale,
               read_attention_factor),
      computed(&R::score_mscale, {"mscale-all-dim"}, nullptr, read_score_mscale),
  };
}

}  // namespace echelon
