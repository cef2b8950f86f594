// HuggingFace config.json: which family a file belongs to, and why we refuse the others.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "core/huggingface_families_io.hpp"
#include "core/model_formats_io.hpp"
#include "core/model_io.hpp"
#include "core/nearest.hpp"

namespace echelon {

namespace {

constexpr std::array<std::string_view, 24> kMixtures = {
    "mixtral",    "deepseek_v2", "deepseek_v3", "deepseek_v32",   "qwen2_moe",  "qwen3_moe",
    "qwen3_next", "gpt_oss",     "llama4",      "llama4_text",    "phimoe",     "olmoe",
    "dbrx",       "grok-1",      "jamba",       "glm4_moe",       "granitemoe", "ernie4_5_moe",
    "minimax",    "kimi_k2",     "arctic",      "hunyuan_v1_moe", "dots1",      "nllb-moe"};
constexpr std::array<std::string_view, 5> kExpertCounts = {
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "n_experts"};
constexpr std::array<std::string_view, 20> kOtherKinds = {
    "bert",        "roberta",    "distilbert", "albert", "electra", "deberta", "deberta-v2",
    "xlm-roberta", "modernbert", "t5",         "mt5",    "umt5",    "bart",    "mbart",
    "pegasus",     "marian",     "m2m_100",    "longt5", "whisper", "vit"};

template <class List>
bool contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// model_type; in files without one, the family of the class in architectures[0].
std::string family_name(JsonReader& reader) {
  if (reader.has("model_type")) return reader.string("model_type");
  const Json* classes = reader.member("architectures");
  const bool named = classes != nullptr && classes->is_array() && !classes->empty() &&
                     classes->front().is_string();
  if (!named) {
    reader.fail(
        "model_type", "the key 'model_type' is missing",
        "a HuggingFace config.json (key model_type) or one of our model files (key schema)");
    return {};
  }
  const std::string name = classes->front().get<std::string>();
  const std::string prefix = name.substr(0, std::min(name.find("For"), name.find("LMHead")));
  for (const HuggingFaceFamily& family : huggingface_families()) {
    if (family.class_prefix == prefix) return std::string(family.model_type);
  }
  return name;
}

void refuse_mixture(JsonReader& reader, const std::string& type) {
  reader.fail("model_type", "'" + type + "' is a mixture-of-experts model",
              "a dense decoder-only transformer",
              "mixture-of-experts models are not described by this version");
}

void refuse_unknown(JsonReader& reader, const std::string& type) {
  std::vector<std::string> known;
  std::string list = "one of ";
  for (const HuggingFaceFamily& family : huggingface_families()) {
    list += (known.empty() ? "" : ", ") + std::string(family.model_type);
    known.emplace_back(family.model_type);
  }
  constexpr std::size_t kShown = 60;
  reader.fail("model_type", "unknown architecture '" + type.substr(0, kShown) + "'", list,
              did_you_mean(type, known));
}

/// Null after an error that says why this file is not one we can describe.
const HuggingFaceFamily* find_family(JsonReader& reader, const std::string& type) {
  bool experts = contains(kMixtures, type) || type.find("moe") != std::string::npos;
  for (const std::string_view key : kExpertCounts) {
    if (reader.has(key)) experts = experts || reader.integer(key, 0, kMostFfn) > 1;
  }
  if (experts) {
    refuse_mixture(reader, type);
    return nullptr;
  }
  const bool encoder = reader.has("is_encoder_decoder") && reader.boolean("is_encoder_decoder");
  if (encoder || contains(kOtherKinds, type)) {
    reader.fail("model_type", "'" + type + "' is not a decoder-only language model",
                "a decoder-only transformer such as gpt2 or llama");
    return nullptr;
  }
  for (const HuggingFaceFamily& family : huggingface_families()) {
    if (family.model_type == type) return &family;
  }
  refuse_unknown(reader, type);
  return nullptr;
}

}  // namespace

Result<ModelSpec> read_huggingface(const Json& document, std::string_view where) {
  JsonReader outer(document, std::string(where));
  outer.ignore_rest();
  std::string type = outer.failed() ? "" : family_name(outer);
  // Multimodal Gemma 3 keeps its language model one level down.
  const bool nested = type.starts_with("gemma3") && outer.has("text_config");
  if (type == "gemma3") type = "gemma3_text";
  const Json* inside = nested ? outer.member("text_config") : &document;
  JsonReader reader(*inside, std::string(where), nested ? "/text_config" : "");
  reader.ignore_rest();
  const HuggingFaceFamily* family =
      outer.failed() || reader.failed() ? nullptr : find_family(reader, type);
  ModelSpec model;
  model.architecture = type;
  model.source = "HuggingFace configuration " + std::string(where);
  if (family != nullptr) family->read(reader, model);
  for (JsonReader* step : {&outer, &reader}) {
    const Status read = step->finish();
    if (!read) return read.error();
  }
  const Status sound = check_model(model, where);
  if (!sound) return sound.error();
  return model;
}

}  // namespace echelon
