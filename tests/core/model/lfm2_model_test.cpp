// LFM2: counts against transformers' modules, FLOPs against torch's counter, files and refusals.
#include <cstdint>
#include <string>

#include "core/plan/executable.hpp"
#include "tests/core/model/config_files.hpp"

using namespace echelon;

TEST_CASE("LFM2 has as many parameters as transformers' modules") {
  // Of Lfm2ForCausalLM and Lfm2MoeForCausalLM on the meta device (transformers 5.24); buffers of
  // the latter are the routers' biases, 32 in 22 layers.
  const ModelSpec dense = family_reading("lfm2-1.2b").model;
  CHECK(dense.parameters() == 1'170'340'608);
  CHECK(dense.conv == ShortConvolution{10, 3, false});
  CHECK(dense.ffn_hidden == 8192);  // two thirds of 12,288
  const ModelSpec mixture = family_reading("lfm2-8b-a1b").model;
  CHECK(mixture.parameters() == 8'339'929'856 + 22 * 32);
  CHECK(mixture.conv.layers == 18);
  CHECK(load_model("lfm2-350m")->parameters() == 354'483'968);
  CHECK(load_model("lfm2-2.6b")->parameters() == 2'569'272'320);
  // Its Lfm2ShortConv alone: 3·h·h in, 3·h of filters, h·h out.
  const ModelSpec::LayerParameters layer =
      dense.layer_parameters(LayerKind::dense, TokenMixer::short_convolution);
  CHECK(layer.total() - layer.mlp_matrices - 2 * 2048 == 4 * 2048 * 2048 + 3 * 2048);
}

TEST_CASE("layers of LFM2 with attention are listed by kind or by index") {
  Json config = Json::parse(slurp(family_path("lfm2-1.2b")));
  Json kinds = Json::array();
  for (int i = 0; i < 16; ++i) kinds.push_back("conv");
  kinds[3] = "full_attention";
  config["layer_types"] = kinds;
  CHECK(parse_model(config.dump(), "config.json")->conv.layers == 15);
  config.erase("layer_types");
  config.erase("full_attn_idxs");
  CHECK(parse_model(config.dump(), "config.json")->conv == ShortConvolution{});
  config["layer_types"] = Json::array({"conv"});
  CHECK(refused_family(config).where == "config.json at /layer_types");
}

TEST_CASE("LFM2's MLP is as wide as the class makes it") {
  const auto width = [](const Json& changes) {
    Json config = Json::parse(slurp(family_path("lfm2-1.2b")));
    config.update(changes);
    return parse_model(config.dump(), "config.json")->ffn_hidden;
  };
  CHECK(width({{"block_auto_adjust_ff_dim", false}}) == 12288);
  CHECK(width({{"block_ff_dim", 6656}}) == 4608);  // LFM2-350M: 4,437 rounded up
  CHECK(width({{"block_ffn_dim_multiplier", 1.3}}) == 10752);
  CHECK(width({{"block_ffn_dim_multiplier", nullptr}, {"block_ff_dim", 1000}}) == 666);
  Json wide = changed_family("lfm2-1.2b", "block_ff_dim", 90'000'000);
  wide["block_ffn_dim_multiplier"] = 2;
  CHECK(refused_family(wide).where == "config.json at /block_ff_dim");
}

TEST_CASE("a short convolution's FLOPs are projections and the filter") {
  // torch.utils.flop_counter over a forward of 512 tokens of two layers, one of each kind, counts
  // 1,678,511,104 with the convolution over two tokens more than there are.
  const Json config{{"model_type", "lfm2"},
                    {"vocab_size", 512},
                    {"hidden_size", 256},
                    {"block_ff_dim", 768},
                    {"num_hidden_layers", 2},
                    {"num_attention_heads", 4},
                    {"num_key_value_heads", 2},
                    {"max_position_embeddings", 1024},
                    {"layer_types", {"conv", "full_attention"}}};
  const Result<ModelSpec> model = parse_model(config.dump(), "config.json");
  INFO((model ? "" : model.error().message()));
  REQUIRE(model.ok());
  CHECK(model->parameters() == 1'378'432);
  const double padding = 2.0 * 3 * 256 * 2;
  CHECK(model->flops_per_token(512).in(kFlop) / 3 * 512 ==
        Approx(1'678'511'104 - padding).epsilon(1e-12));
}

TEST_CASE("a model file with short convolutions is read back as it was written") {
  const ModelSpec model = *load_model("lfm2-8b-a1b");
  const Result<ModelSpec> again = parse_model(model_to_json(model), "model.json");
  REQUIRE(again.ok());
  CHECK(*again == model);
}

TEST_CASE("short convolutions stand next to full attention alone") {
  ModelSpec model = *load_model("lfm2-1.2b");
  CHECK(check_model(model, "model.json").ok());
  const auto place = [](const ModelSpec& changed) {
    const Status sound = check_model(changed, "model.json");
    return sound ? std::string("sound") : sound.error().where;
  };
  ModelSpec changed = model;
  changed.conv.layers = 16;
  CHECK(place(changed) == "model.json at /conv/layers");
  changed = model;
  changed.sliding_window = 64;
  changed.windowed_layers = 2;
  CHECK(place(changed) == "model.json at /conv/layers");
  changed = model;
  changed.conv = {.kernel = 3};
  CHECK(place(changed) == "model.json at /conv/layers");
}

TEST_CASE("the own runtime refuses short convolutions by name") {
  CHECK(not_executed(*load_model("lfm2-1.2b")) == "gated short convolutions");
}
