// The config.json files of HuggingFace families in tests/core/model/configs.
#pragma once

#include <string>

#include "core/json/json_io.hpp"
#include "core/model/model_io.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {

inline std::string family_path(const std::string& name) {
  return ECHELON_SOURCE_DIR "/tests/core/model/configs/" + name + ".json";
}

inline ModelReading family_reading(const std::string& name) {
  const Result<ModelReading> reading = read_model(family_path(name));
  INFO(name << (reading ? "" : reading.error().message()));
  REQUIRE(reading.ok());
  return *reading;
}

inline Json changed_family(const std::string& name, const std::string& key, const Json& value) {
  Json document = Json::parse(slurp(family_path(name)));
  document[key] = value;
  return document;
}

inline Error refused_family(const Json& document) {
  const Result<ModelSpec> model = parse_model(document.dump(), "config.json");
  REQUIRE_FALSE(model.ok());
  return model.error();
}

}  // namespace echelon
