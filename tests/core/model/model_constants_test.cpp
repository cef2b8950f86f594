// A model's constants in its file: epsilon, rotary embedding, arithmetic without a field.
#include <string>

#include "core/json/json_io.hpp"
#include "core/model/model_io.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("every constant is written and read back") {
  const auto survives = [](auto change) {
    ModelSpec model = *load_model("llama3.1-8b");
    const ModelSpec before = model;
    change(*model.constants);
    REQUIRE_FALSE(model == before);
    const Result<ModelSpec> back = parse_model(model_to_json(model), "copy.json");
    INFO((back ? "" : back.error().message()));
    REQUIRE(back.ok());
    CHECK(*back == model);
  };
  survives([](ModelConstants& c) { c.norm_epsilon = 3e-7; });
  survives([](ModelConstants& c) { c.other_arithmetic = {"scores capped at 50", "é"}; });
  survives([](ModelConstants& c) { c.rope.theta = 1e6; });
  survives([](ModelConstants& c) { c.rope.rotated_part = 0.25; });
  survives([](ModelConstants& c) { c.rope.factor = 2.5; });
  survives([](ModelConstants& c) { c.rope.original_positions = 77; });
  survives([](ModelConstants& c) { c.rope.low_frequency_factor = 2; });
  survives([](ModelConstants& c) { c.rope.high_frequency_factor = 9; });
  survives([](ModelConstants& c) { c.rope = {.scaling = RopeScaling::linear, .factor = 3}; });
  survives([](ModelConstants& c) { c.rope = {.scaling = RopeScaling::dynamic, .factor = 3}; });
  survives([](ModelConstants& c) { c.rope = {.scaling = RopeScaling::longrope}; });
  survives([](ModelConstants& c) {
    c.rope = {.scaling = RopeScaling::yarn,
              .factor = 3,
              .original_positions = 12,
              .beta_fast = 31,
              .beta_slow = 2,
              .whole_pairs = false,
              .attention_factor = 1.5};
  });
}

TEST_CASE("a file of schema 1 has no constants and is written back unchanged") {
  ModelSpec model = *load_model("llama3.1-8b");
  model.constants.reset();
  const std::string text = model_to_json(model);
  CHECK(text.find("\"schema\": 1") != std::string::npos);
  const Result<ModelSpec> back = parse_model(text, "old.json");
  REQUIRE(back.ok());
  CHECK(*back == model);
  CHECK_FALSE(back->constants.has_value());
  CHECK(model_to_json(*back) == text);
}

TEST_CASE("a file of schema 2 requires its constants, and errors have their pointers") {
  const auto refused = [](const char* name, const char* key, const Json& value) {
    Json file = Json::parse(model_to_json(*load_model(name)));
    if (value.is_null()) {
      file.erase(key);
    } else {
      file[key] = value;
    }
    const Result<ModelSpec> model = parse_model(file.dump(), "my.json");
    REQUIRE_FALSE(model.ok());
    return model.error().where;
  };
  CHECK(refused("gpt2", "norm_epsilon", nullptr) == "my.json at /norm_epsilon");
  CHECK(refused("gpt2", "norm_epsilon", 2) == "my.json at /norm_epsilon");
  CHECK(refused("gpt2", "rope", {{"theta", 1e4}}) ==
        "my.json at /rope");  // GPT-2 has no rotary embedding
  CHECK(refused("llama2-7b", "rope", nullptr) == "my.json at /rope");
  CHECK(refused("llama2-7b", "rope", Json::object()) == "my.json at /rope/theta");
  CHECK(refused("llama2-7b", "rope", {{"theta", 0}}) == "my.json at /rope/theta");
  CHECK(refused("llama2-7b", "rope", {{"theta", 1e4}, {"scaling", "ntk"}}) ==
        "my.json at /rope/scaling");
  CHECK(refused("llama2-7b", "rope", {{"theta", 1e4}, {"scaling", "linear"}}) ==
        "my.json at /rope/factor");
  CHECK(refused("llama2-7b", "rope", {{"theta", 1e4}, {"factor", 2}}) == "my.json at /rope/factor");
  Json crossed = Json::parse(model_to_json(*load_model("llama3.1-8b")))["rope"];
  crossed["low_frequency_factor"] = 5;  // above the high one
  CHECK(refused("llama3.1-8b", "rope", crossed) == "my.json at /rope/high_frequency_factor");
  CHECK(refused("llama2-7b", "schema", 3) == "my.json at /schema");
}
