#include "core/model/huggingface_networks_io.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/text.hpp"
#include "core/model/huggingface_families_io.hpp"

namespace echelon {

namespace {

bool is_family(std::string_view type) {
  const auto families = huggingface_families();
  return std::any_of(families.begin(), families.end(),
                     [&](const HuggingFaceFamily& each) { return each.model_type == type; });
}

/// What holds text_config in a file of several networks: the file itself, or the part of Qwen's
/// Omni models that reads and writes text.
struct Networks {
  const Json& object;
  std::string pointer;
};
Networks networks_of(const Json& document) {
  constexpr const char* kThinker = "thinker_config";
  const bool nested = document.is_object() && !document.contains("text_config") &&
                      document.contains(kThinker) && document[kThinker].is_object();
  return nested ? Networks{document[kThinker], "/" + std::string(kThinker)}
                : Networks{document, ""};
}

/// The parts of an object that belong to other networks: vision_config, audio_config.
std::string parts_of(const Json& document) {
  std::string list;
  for (const auto& [key, value] : document.items()) {
    const bool network = key.ends_with("_config") && value.is_object() && key != "text_config" &&
                         key != "quantization_config" && key != "thinker_config" &&
                         value.contains("model_type");
    const bool tower = key == "vision_config" && value.is_object();
    if (network || tower) list += (list.empty() ? "" : " and ") + printable(key);
  }
  return list;
}

}  // namespace

LanguageModel language_model(const Json& document, JsonReader& outer, std::string type) {
  const Networks networks = networks_of(document);
  const bool several = networks.object.is_object() && networks.object.contains("text_config") &&
                       !networks.object["text_config"].is_null();
  if (!several || outer.failed() || refuse_kind(outer, type)) {
    // The language model alone, under the name of the whole.
    if (!is_family(type) && is_family(type + "_text")) type += "_text";
    return {document, std::move(type), ""};
  }
  LanguageModel model{networks.object["text_config"], type + "_text",
                      networks.pointer + "/text_config"};
  if (!model.object.is_object()) return model;
  JsonReader inner(model.object, outer.where(), model.pointer);
  inner.ignore_rest();
  if (inner.has("model_type")) model.type = inner.string("model_type");
  if (const Status read = inner.finish(); !read) {
    outer.fail("text_config", read.error().found, read.error().expected);
  }
  // Some files say only outside that the embeddings are tied.
  if (!model.object.contains("tie_word_embeddings") && outer.has("tie_word_embeddings")) {
    model.object["tie_word_embeddings"] = outer.boolean("tie_word_embeddings");
  }
  return model;
}

std::string other_networks(const Json& document) {
  std::string others = parts_of(document);
  const Networks networks = networks_of(document);
  if (networks.pointer.empty()) return others;
  const std::string more = parts_of(networks.object);
  if (!more.empty()) others += (others.empty() ? "" : " and ") + more;
  return others;
}

}  // namespace echelon
