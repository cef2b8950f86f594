// Kimi Linear's config.json. For *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_kimi_linear(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
