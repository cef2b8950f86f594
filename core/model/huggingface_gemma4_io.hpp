// Gemma 4. For *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_gemma4(JsonReader& reader, ModelSpec& model);
void read_gemma4_unified(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
