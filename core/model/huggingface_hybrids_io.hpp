// HuggingFace families with state-space layers next to attention. For *_io.cpp only.
#pragma once

#include <string>
#include <vector>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_bamba(JsonReader& reader, ModelSpec& model);
void read_granitemoehybrid(JsonReader& reader, ModelSpec& model);
/// Attention and a state space side by side in every layer.
void read_falcon_h1(JsonReader& reader, ModelSpec& model);
void read_nemotron_h(JsonReader& reader, ModelSpec& model);
void note_nemotron_h(JsonReader& reader, const ModelSpec& model, std::vector<std::string>& remarks);

}  // namespace echelon
