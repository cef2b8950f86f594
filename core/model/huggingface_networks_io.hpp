// The networks of a HuggingFace config.json, of which one is a language model. For *_io.cpp only.
#pragma once

#include <string>

#include "core/json/json_io.hpp"

namespace echelon {

/// The object that describes the language model: the file's own, or text_config in a file of
/// several networks.
struct LanguageModel {
  Json object;
  std::string type;
  std::string pointer;
};
[[nodiscard]] LanguageModel language_model(const Json& document, JsonReader& outer,
                                           std::string type);

/// The names of the parts that belong to other networks: "vision_config and audio_config", or "".
[[nodiscard]] std::string other_networks(const Json& document);

}  // namespace echelon
