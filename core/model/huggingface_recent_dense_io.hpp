// Readers of the dense HuggingFace families of 2025 and 2026. For *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_apertus1p5(JsonReader& reader, ModelSpec& model);
void read_cwm(JsonReader& reader, ModelSpec& model);
void read_exaone(JsonReader& reader, ModelSpec& model);
void read_granite_swa(JsonReader& reader, ModelSpec& model);
void read_helium(JsonReader& reader, ModelSpec& model);
void read_hyperclovax(JsonReader& reader, ModelSpec& model);
void read_iquestcoder(JsonReader& reader, ModelSpec& model);
void read_jais2(JsonReader& reader, ModelSpec& model);
void read_minicpm3(JsonReader& reader, ModelSpec& model);
void read_ministral(JsonReader& reader, ModelSpec& model);
void read_muse_glimmer(JsonReader& reader, ModelSpec& model);
void read_nanochat(JsonReader& reader, ModelSpec& model);

/// Granite's windows, attention sinks and rotary bases of each layer.
void read_granite_windows(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
