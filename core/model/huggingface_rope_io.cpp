// Constants in HuggingFace configurations: the norm's epsilon and the rotary embedding.
// Source: transformers, modeling_rope_utils.py (standardize_rope_params and _compute_*_parameters).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/model/huggingface_pieces_io.hpp"
#include "core/model/model_formats_io.hpp"

namespace echelon {

namespace {

/// YaRN's factor of cosines and sines: 0.1·mscale·ln(factor) + 1, or the ratio of two such terms.
double yarn_mscale(double factor, double mscale) {
  constexpr double kPerLog = 0.1;
  return factor <= 1 ? 1 : kPerLog * mscale * std::log(factor) + 1;
}

/// `original`: the value in the configuration itself, which takes precedence over the one in the
/// object (Phi-3).
void read_original_positions(JsonReader& inner, RotaryEmbedding& rope,
                             std::optional<std::int64_t> original, const ModelSpec& model) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const std::int64_t inside = inner.integer_or(kKey, 1, kMaxPositions, model.max_positions);
  rope.original_positions = small(original.value_or(inside));
}

void read_yarn(JsonReader& inner, RotaryEmbedding& rope, const ModelSpec& model) {
  const bool given = inner.has("factor");  // null: derived from the context lengths
  const double lengths = static_cast<double>(model.max_positions) / rope.original_positions;
  rope.factor = given ? inner.number("factor", 1, kMaxRope) : std::max(1.0, lengths);
  rope.beta_fast = inner.number_or("beta_fast", kMinRope, kMaxRope, 32);
  rope.beta_slow = inner.number_or("beta_slow", kMinRope, kMaxRope, 1);
  rope.whole_pairs = inner.boolean_or("truncate", true);
  const double mscale = inner.number_or("mscale", 0, kMaxRope, 0);
  const double all = inner.number_or("mscale_all_dim", 0, kMaxRope, 0);
  if (model.latent()) rope.score_mscale = all;
  const double usual = mscale > 0 && all > 0
                           ? yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, all)
                           : yarn_mscale(rope.factor, 1);
  rope.attention_factor = inner.number_or("attention_factor", kMinRope, kMaxRope, usual);
}

/// Reads the object rope_scaling or rope_parameters.
void read_scaling(JsonReader& inner, ModelSpec& model, std::optional<std::int64_t> original) {
  RotaryEmbedding& rope = model.constants->rope;
  rope.theta = inner.number_or("rope_theta", kMinTheta, kMaxTheta, rope.theta);
  rope.rotated_part = inner.number_or("partial_rotary_factor", 0, 1, rope.rotated_part);
  const std::string old_word = inner.string_or("type", "default");
  const std::string word = inner.string_or("rope_type", old_word);
  if (word == "linear") {
    rope.scaling = RopeScaling::linear;
    rope.factor = inner.number("factor", 1, kMaxRope);
  } else if (word == "dynamic") {
    rope.scaling = RopeScaling::dynamic;
    rope.factor = inner.number("factor", 1, kMaxRope);
    // HunYuan: the base grows from the first position on, and the keys of YaRN are not read.
    if (inner.number_or("alpha", 0, kMaxRope, 0) > 0) {
      add_arithmetic(model, "a rotary base that is multiplied by a power of alpha");
      inner.ignore({"beta_fast", "beta_slow", "mscale", "mscale_all_dim"});
    }
  } else if (word == "llama3") {
    rope.scaling = RopeScaling::llama3;
    rope.factor = inner.number("factor", 1, kMaxRope);
    rope.low_frequency_factor = inner.number("low_freq_factor", kMinRope, kMaxRope);
    rope.high_frequency_factor = inner.number("high_freq_factor", kMinRope, kMaxRope);
    read_original_positions(inner, rope, original, model);
  } else if (word == "yarn" || word == "deepseek_yarn") {  // the second: Sarvam's word for it
    rope.scaling = RopeScaling::yarn;
    read_original_positions(inner, rope, original, model);
    read_yarn(inner, rope, model);
  } else if (word == "longrope" || word == "su") {  // su: the name before transformers 4.43
    rope.scaling = RopeScaling::longrope;
    inner.ignore({"long_factor", "short_factor", "factor", "attention_factor", "long_mscale",
                  "short_mscale"});
  } else if (word == "proportional") {  // Gemma 4: the other pairs stay as they are
    add_arithmetic(model, "rotary angles of a part of the pairs, spread over the head");
  } else if (word != "default") {
    const std::vector<std::string> known = {"default", "linear",   "dynamic",     "llama3",
                                            "yarn",    "longrope", "proportional"};
    if (std::string near = did_you_mean(word, known); !near.empty()) {
      const char* key = inner.has("rope_type") ? "rope_type" : "type";
      return inner.fail(key, in_quotes(word), fmt::format("one of {}", fmt::join(known, ", ")),
                        std::move(near));
    }
    add_arithmetic(model, in_quotes(word) + std::string(kUnknownRopeScaling));
    return;
  }
  inner.ignore({"original_max_position_embeddings", "max_position_embeddings"});
  // Of Ministral 3 and Mistral 4: 1 + β·ln(1 + ⌊position / original positions⌋).
  if (inner.number_or("llama_4_scaling_beta", 0, kMaxRope, 0) > 0) {
    add_arithmetic(model, "queries that grow with the logarithm of their positions");
  }
  for (const std::string& key : inner.unread()) {
    add_arithmetic(model, "unknown key '" + key + "' of the rotary embedding");
  }
}

}  // namespace

void read_norm_epsilon(JsonReader& reader, ModelSpec& model, std::string_view key,
                       double otherwise) {
  model.constants->norm_epsilon = reader.number_or(key, 0, 1, otherwise);
}

void read_rope(JsonReader& reader, ModelSpec& model, const RopeDefaults& otherwise) {
  RotaryEmbedding& rope = model.constants->rope;
  rope.theta = reader.number_or("rope_theta", kMinTheta, kMaxTheta, otherwise.theta);
  rope.rotated_part = reader.number_or("partial_rotary_factor", 0, 1, otherwise.rotated_part);
  constexpr const char* kOriginal = "original_max_position_embeddings";
  std::optional<std::int64_t> original;
  if (reader.has(kOriginal)) original = reader.integer(kOriginal, 1, kMaxPositions);
  const auto used = [&](const char* key) {
    const Json* object = reader.member(key);
    return object != nullptr && !object->is_null() && !object->empty();
  };
  // Both keys are read, so that neither counts as unknown; the older one takes precedence, as in
  // transformers.
  const bool newer = used("rope_parameters");
  const char* key = used("rope_scaling") ? "rope_scaling" : newer ? "rope_parameters" : nullptr;
  if (key == nullptr) return;
  const Json* object = reader.member(key);
  std::string pointer = "/" + std::string(key);
  if (object->contains("full_attention")) {  // one object per kind of layer
    add_arithmetic(model, "rotary embeddings that differ between layers");
    // null: these layers have no positions, which the families that may have them say.
    const bool none =
        (*object)["full_attention"].is_null() && object->contains("sliding_attention");
    const char* kind = none ? "sliding_attention" : "full_attention";
    object = &(*object)[kind];
    pointer += "/" + std::string(kind);
  }
  JsonReader inner(*object, reader.where(), pointer);
  inner.ignore_rest();
  if (!inner.failed()) read_scaling(inner, model, original);
  if (const Status read = inner.finish(); !read) {
    // "config.json at /rope_scaling/factor"
    const std::string& place = read.error().where;
    std::string within = place.substr(place.rfind('/') + 1);
    within = within == key ? "" : within + " ";
    reader.fail(key, within + read.error().found, read.error().expected, read.error().hint);
  }
}

}  // namespace echelon
