// The supported HuggingFace model families. For *_io.cpp only.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

/// One family: its names in files, and the reader that converts its keys to a ModelSpec.
struct HuggingFaceFamily {
  std::string_view model_type;
  std::string_view class_prefix;  ///< of architectures[0], up to ForCausalLM or LMHeadModel
  void (*read)(JsonReader&, ModelSpec&);
  bool experts = false;  ///< may have experts; in other families keys that count experts are errors
  /// Adds what the family's class makes of keys otherwise than one expects.
  void (*note)(JsonReader&, const ModelSpec&, std::vector<std::string>&) = nullptr;
};

[[nodiscard]] std::span<const HuggingFaceFamily> huggingface_families();

/// Null after an error that explains why this file is not supported.
[[nodiscard]] const HuggingFaceFamily* find_family(JsonReader& reader, const std::string& type);
/// True after an error: the file is of another kind of model, or has an operator without a price.
bool refuse_kind(JsonReader& reader, std::string_view type);
/// An error for a file without a family, which names what it is instead.
void refuse_unnamed(JsonReader& reader);

}  // namespace echelon
