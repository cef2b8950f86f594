// The supported HuggingFace model families. For *_io.cpp only.
#pragma once

#include <span>
#include <string_view>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

/// One family: its names in files, and the reader that converts its keys to a ModelSpec.
struct HuggingFaceFamily {
  std::string_view model_type;
  std::string_view class_prefix;  ///< of architectures[0], up to ForCausalLM or LMHeadModel
  void (*read)(JsonReader&, ModelSpec&);
  bool experts = false;  ///< may have experts; in other families keys that count experts are errors
  /// All keys that change the computed numbers are read; an unknown key is assumed to change them.
  bool audited = false;
};

[[nodiscard]] std::span<const HuggingFaceFamily> huggingface_families();

}  // namespace echelon
