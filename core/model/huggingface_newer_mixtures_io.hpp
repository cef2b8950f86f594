// Readers of the HuggingFace families with experts of 2026, and of their relatives. For *_io.cpp
// only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_aria(JsonReader& reader, ModelSpec& model);
void read_axk1(JsonReader& reader, ModelSpec& model);
void read_beam(JsonReader& reader, ModelSpec& model);
void read_cohere2_moe(JsonReader& reader, ModelSpec& model);
void read_flex_olmo(JsonReader& reader, ModelSpec& model);
void read_flint(JsonReader& reader, ModelSpec& model);
void read_granitemoe_swa(JsonReader& reader, ModelSpec& model);
void read_granitemoeshared(JsonReader& reader, ModelSpec& model);
void read_kolibri1(JsonReader& reader, ModelSpec& model);
void read_mellum(JsonReader& reader, ModelSpec& model);
void read_sarvam_mla(JsonReader& reader, ModelSpec& model);
void read_sarvam_moe(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
