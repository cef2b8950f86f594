// HuggingFace families of 2025 and 2026 whose layers are made of parts that older ones have. For
// *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_solar_open(JsonReader& reader, ModelSpec& model);
void read_hy_v3(JsonReader& reader, ModelSpec& model);
void read_exaone_moe(JsonReader& reader, ModelSpec& model);
void read_afmoe(JsonReader& reader, ModelSpec& model);
/// OLMo's attention in every fourth layer, gated delta nets in the others.
void read_olmo_hybrid(JsonReader& reader, ModelSpec& model);
/// Dense layers with latent attention.
void read_mistral4(JsonReader& reader, ModelSpec& model);
void read_youtu(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
