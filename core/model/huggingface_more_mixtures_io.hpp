// HuggingFace families with experts whose files name them in a way of their own. For *_io.cpp only.
#pragma once

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

void read_bailing_moe(JsonReader& reader, ModelSpec& model);
void read_dots1(JsonReader& reader, ModelSpec& model);
void read_ernie4_5_moe(JsonReader& reader, ModelSpec& model);
void read_glm4_moe_lite(JsonReader& reader, ModelSpec& model);
void read_granitemoe(JsonReader& reader, ModelSpec& model);
void read_hunyuan_moe(JsonReader& reader, ModelSpec& model);
void read_phimoe(JsonReader& reader, ModelSpec& model);

}  // namespace echelon
