// Mistral Small 4: counts against transformers' module, its router, its rotary part.
#include "tests/core/model/config_files.hpp"

using namespace echelon;

TEST_CASE("Mistral Small 4 has as many parameters as transformers' module") {
  // Of Mistral4ForCausalLM on the meta device (transformers 5.24).
  const ModelSpec model = family_reading("mistral-small-4-multimodal").model;
  CHECK(model.parameters() == 118'972'826'624);
  CHECK(model.active_parameters() == 118'972'826'624 - std::int64_t{124} * 36 * 3 * 4096 * 2048);
  CHECK(model.moe.router_score == RouterScore::softmax);
  CHECK_FALSE(model.moe.router_bias);
  CHECK(model.moe.shared_ffn_hidden == 2048);
  CHECK(model.constants->rope.rotated_part == 1);  // of the part that has positions
  CHECK(model.constants->rope.score_mscale == 1);
}

TEST_CASE("another rotary part than qk_rope_head_dim's is refused") {
  Json config = Json::parse(slurp(family_path("mistral-small-4-multimodal")));
  config["text_config"]["rope_parameters"]["partial_rotary_factor"] = 0.25;
  CHECK(refused_family(config).where == "config.json at /text_config/rope_parameters");
}
