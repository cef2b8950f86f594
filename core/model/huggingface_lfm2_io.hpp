// LFM2. For *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_lfm2(JsonReader& reader, ModelSpec& model);
void read_lfm2_moe(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
