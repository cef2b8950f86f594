// Readers of the dense HuggingFace families of up to 2024 that are no relatives of Llama. For
// *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_bloom(JsonReader& reader, ModelSpec& model);
void read_falcon(JsonReader& reader, ModelSpec& model);
void read_gpt2(JsonReader& reader, ModelSpec& model);
void read_gpt_bigcode(JsonReader& reader, ModelSpec& model);
void read_gpt_neo(JsonReader& reader, ModelSpec& model);
void read_mpt(JsonReader& reader, ModelSpec& model);
void read_olmo(JsonReader& reader, ModelSpec& model);
void read_opt(JsonReader& reader, ModelSpec& model);
void read_persimmon(JsonReader& reader, ModelSpec& model);
void read_stablelm(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
