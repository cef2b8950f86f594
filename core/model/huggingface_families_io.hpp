// The HuggingFace model families we can describe. For *_io.cpp only.
#pragma once

#include <span>
#include <string_view>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

/// One family: how its files name it, and how its keys become a ModelSpec.
struct HuggingFaceFamily {
  std::string_view model_type;
  std::string_view class_prefix;  ///< of architectures[0], up to ForCausalLM or LMHeadModel
  void (*read)(JsonReader&, ModelSpec&);
  bool experts = false;  ///< may have experts; elsewhere keys that count them are an error
  /// Every key that changes its numbers is read: an unknown one is taken for arithmetic of its own.
  bool audited = false;
};

[[nodiscard]] std::span<const HuggingFaceFamily> huggingface_families();

}  // namespace echelon
