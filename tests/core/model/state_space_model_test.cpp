// State spaces, layers of one part and experts on a latent: counts and FLOPs, against transformers'
// modules and hand arithmetic.
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include "core/plan/executable.hpp"
#include "tests/core/model/config_files.hpp"

using namespace echelon;

namespace {

ModelSpec hybrid_model(const std::string& name) {
  const Result<ModelSpec> model = load_model(name);
  INFO(name << ": " << (model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

std::string refusal_of(const char* name, const char* key, const Json& value) {
  const Error error = refused_family(changed_family(name, key, value));
  return error.where.substr(error.where.rfind('/') + 1) + ": " + error.message();
}

bool has_part(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("hybrid models have the parameters of transformers' modules") {
  // Of transformers 5.24; routers' corrections are buffers there: one number per expert and layer.
  const std::pair<const char*, std::int64_t> models[] = {
      {"nemotron-h-8b", 8'100'852'736},
      {"nemotron-nano-9b-v2", 8'888'227'328},
      {"nemotron-3-nano-30b-a3b", 31'577'937'344 + 23 * 128},
      {"nemotron-3-super-120b-a12b", 120'668'687'360 + 40 * 512},
      {"granite-4.0-h-small", 32'207'337'984},
      {"granite-4.0-micro", 3'402'836'480},
      {"bamba-9b", 9'780'235'392}};
  for (const auto& [name, parameters] : models) {
    INFO(name);
    CHECK(family_reading(name).model.parameters() == parameters);
  }
}

TEST_CASE("hybrid configurations give the shapes of the catalog") {
  for (const std::string name : {"nemotron-h-8b", "nemotron-nano-9b-v2", "nemotron-3-nano-30b-a3b",
                                 "nemotron-3-super-120b-a12b", "granite-4.0-h-small"}) {
    INFO(name);
    ModelSpec read = family_reading(name).model;
    const ModelSpec known = hybrid_model(name);
    read.name = known.name;
    read.source = known.source;
    read.prediction_modules = 0;  // the catalog leaves them out
    CHECK(read == known);
  }
}

TEST_CASE("Nemotron 3 Nano with its prediction module has Nemotron 3.5 Lightning's weights") {
  // 32,913,266,240: NVIDIA Megatron-Bridge 067f987, examples/model_verification_cards/
  // nemotron-3.5-lightning/card.yaml. The module has a layer with attention, one with experts,
  // three norms and the projection of two hidden states to one.
  const ModelSpec nano = hybrid_model("nemotron-3-nano-30b-a3b");
  const std::int64_t h = nano.hidden;
  const std::int64_t module = nano.layer_parameters(LayerKind::moe, TokenMixer::attention).total() +
                              nano.layer_parameters(LayerKind::moe, TokenMixer::none).total() +
                              3 * h + 2 * h * h;
  CHECK(nano.parameters() + module == 32'913'266'240);
  CHECK(family_reading("nemotron-3-super-120b-a12b").model.prediction_modules == 1);
}

TEST_CASE("active parameters leave out the experts of the layers that have them") {
  const ModelSpec nano = hybrid_model("nemotron-3-nano-30b-a3b");
  CHECK(nano.parameters() - nano.active_parameters() ==
        std::int64_t{122} * 23 * 2 * 2688 * 1856);  // not 52 layers
  const ModelSpec super = hybrid_model("nemotron-3-super-120b-a12b");
  CHECK(super.parameters() - super.active_parameters() ==
        std::int64_t{490} * 40 * 2 * 1024 * 2688);  // of the latent's width, not the hidden state's
  CHECK(static_cast<double>(super.active_parameters()) == Approx(12.7e9).epsilon(0.01));
}

TEST_CASE("a hybrid's FLOPs are projections, scan, attention, experts and head") {
  // Hand arithmetic for Nemotron 3 Nano, multiplications per token: a state space has 2688 ·
  // (2 · 4096 + 2 · 8 · 128 + 64) + 4096 · 2688 and 3.5 · 4096 · 128; attention queries and output
  // of 4096, keys and values of 256; experts 6 · 2 · 2688 · 1856, shared 2 · 2688 · 3712, router.
  constexpr double state = 2688.0 * (2 * 4096 + 2 * 8 * 128 + 64) + 4096.0 * 2688;
  constexpr double scan = 3.5 * 4096 * 128;
  constexpr double attention = 2688.0 * (4096 + 2 * 256) + 4096.0 * 2688;
  constexpr double scores = 2 * 32 * 128 * 8192.0;
  constexpr double experts = 6 * 2 * 2688.0 * 1856 + 2 * 2688.0 * 3712 + 2688.0 * 128;
  constexpr double head = 131'072 * 2688.0;
  constexpr double expected =
      6 * (23 * (state + scan) + 6 * (attention + scores) + 23 * experts + head);
  const ModelSpec nano = hybrid_model("nemotron-3-nano-30b-a3b");
  CHECK(nano.flops_per_token(8192).in(kFlop) == Approx(expected).epsilon(1e-12));
  // With a latent: experts of its width, and two projections.
  ModelSpec latent = nano;
  latent.moe.latent_hidden = 1024;
  constexpr double narrower = 6 * 2 * (2688.0 - 1024) * 1856 - 2 * 2688.0 * 1024;
  CHECK((nano.flops_per_token(8192) - latent.flops_per_token(8192)).in(kFlop) ==
        Approx(6 * 23 * narrower));
}

TEST_CASE("MLPs of a model with layers of one part count once") {
  const ModelSpec model = hybrid_model("nemotron-h-8b");
  constexpr double state = 4096.0 * (2 * 8192 + 2 * 8 * 128 + 128) + 8192.0 * 4096;
  constexpr double scan = 3.5 * 8192 * 128;
  constexpr double attention = 4096.0 * (4096 + 2 * 1024) + 4096.0 * 4096;
  constexpr double expected = 6 * (24 * (state + scan) + 24 * 2 * 4096.0 * 21504 +
                                   4 * (attention + 2 * 32 * 128 * 8192.0) + 131'072 * 4096.0);
  CHECK(model.flops_per_token(8192).in(kFlop) == Approx(expected).epsilon(1e-12));
  CHECK(model.layers_with(TokenMixer::attention) == 4);
  CHECK(model.layers_with(TokenMixer::none) == 24);
  CHECK(model.norms_per_layer() == 1);
}

TEST_CASE("layers are counted by their list, in both generations of names") {
  const auto layers = [](const char* name, const char* key, const Json& value) {
    const Result<ModelSpec> model =
        parse_model(changed_family(name, key, value).dump(), "config.json");
    INFO((model ? "" : model.error().message()));
    REQUIRE(model.ok());
    return std::pair(model->layers, model->ssm.layers);
  };
  CHECK(layers("nemotron-h-8b", "hybrid_override_pattern", "MM*-M") == std::pair(5, 3));
  CHECK(layers("nemotron-h-8b", "layers_block_type", {"mamba", "attention", "mlp"}) ==
        std::pair(3, 1));
  CHECK(layers("bamba-9b", "attn_layer_indices", {1, 2}) == std::pair(32, 30));
  CHECK(family_reading("granite-4.0-micro").model.ssm == StateSpace{});
  CHECK(family_reading("granite-4.0-micro").model.position == PositionEmbedding::rope);
  CHECK(family_reading("granite-4.0-h-small").model.position == PositionEmbedding::none);
  CHECK(family_reading("granite-4.0-h-small").model.moe.shared_ffn_hidden == 1536);
  CHECK(family_reading("bamba-9b").model.constants->rope.rotated_part == 0.5);
}

TEST_CASE("layers that a hybrid configuration cannot have are refused at their key") {
  CHECK(has_part(refusal_of("nemotron-h-8b", "hybrid_override_pattern", "MX*-"),
                 "hybrid_override_pattern: "));
  CHECK(has_part(refusal_of("nemotron-h-8b", "hybrid_override_pattern", ""), "no layers"));
  CHECK(has_part(refusal_of("nemotron-3-nano-30b-a3b", "hybrid_override_pattern", "ME-*"),
                 "MLPs of one kind"));
  CHECK(has_part(refusal_of("nemotron-h-8b", "use_bias", true), "use_bias: "));
  CHECK(has_part(refusal_of("bamba-9b", "mamba_conv_bias", false), "mamba_conv_bias: "));
  CHECK(has_part(refusal_of("granite-4.0-h-small", "layer_types", {"mamba"}), "40 entries"));
  // Neither token mixers alone nor models without attention have a price.
  CHECK(has_part(refusal_of("nemotron-h-8b", "hybrid_override_pattern", "M*M*M*"),
                 "hybrid_override_pattern: no layer with an MLP or experts"));
  CHECK(has_part(refusal_of("nemotron-h-8b", "hybrid_override_pattern", "M-M-"),
                 "hybrid_override_pattern: no layer with attention"));
  CHECK(
      has_part(refusal_of("nemotron-3-super-120b-a12b", "mtp_layers_block_type", {"mamba", "moe"}),
               "mtp_layers_block_type: prediction modules of the layers 'ME'"));
  Json without = Json::parse(slurp(family_path("nemotron-h-8b")));
  without.erase("hybrid_override_pattern");
  CHECK(has_part(refused_family(without).message(), "missing"));
}

TEST_CASE("the width of a state space's heads is checked as transformers checks it") {
  CHECK(has_part(refusal_of("bamba-9b", "mamba_d_head", "foo"), "mamba_d_head: 'foo'"));
  CHECK(has_part(refusal_of("bamba-9b", "mamba_d_head", 2.5), "mamba_d_head: "));
  CHECK(has_part(refusal_of("bamba-9b", "mamba_expand", 4),
                 "mamba_d_head: 64 with 128 heads and mamba_expand 4 x hidden_size 4096 = 16384"));
  CHECK(has_part(refusal_of("granite-4.0-h-small", "mamba_d_head", 32), "mamba_d_head: 32 with"));
  Json automatic = changed_family("bamba-9b", "mamba_d_head", "auto");
  CHECK(parse_model(automatic.dump(), "config.json")->ssm.head_dim == 64);
  automatic["mamba_n_heads"] = 100;
  CHECK(refused_family(automatic).where == "config.json at /mamba_n_heads");
  automatic["mamba_n_heads"] = 64;
  automatic.erase("mamba_d_head");
  CHECK(parse_model(automatic.dump(), "config.json")->ssm.head_dim == 128);
}

TEST_CASE("what transformers' nemotron_h does not read is said") {
  const TempDir folder;
  const auto remarks = [&](const char* key, const Json& value) {
    const std::string path = (folder.path() / "config.json").string();
    std::ofstream(path) << changed_family("nemotron-h-8b", key, value).dump();
    const Result<ModelReading> reading = read_model(path);
    REQUIRE(reading.ok());
    CHECK(reading->model.layers == 52);
    CHECK(reading->model.windowed_layers == 0);
    std::string all;
    for (const std::string& each : reading->remarks) all += each + "\n";
    return all;
  };
  CHECK(remarks("num_hidden_layers", 52).empty());
  CHECK(has_part(remarks("num_hidden_layers", 60), "not with its num_hidden_layers 60"));
  CHECK(has_part(remarks("sliding_window", 4096), "not priced: sliding_window"));
}

TEST_CASE("the order of layers is read, written and compared with their numbers") {
  CHECK(family_reading("nemotron-h-8b").model.layer_pattern.substr(0, 9) == "M-M-M-M*-");
  CHECK(family_reading("nemotron-3-super-120b-a12b").model.layer_pattern.find('E') == 1);
  CHECK(family_reading("bamba-9b").model.layer_pattern.empty());
  ModelSpec model = hybrid_model("nemotron-h-8b");
  const std::int64_t parameters = model.parameters();
  const auto refused = [&] {
    const Result<ModelSpec> read = parse_model(model_to_json(model), "model.json");
    return read ? "" : read.error().where;
  };
  CHECK(parse_model(model_to_json(model), "model.json").value() == model);
  std::swap(model.layer_pattern[0], model.layer_pattern[1]);
  CHECK(refused().empty());  // another order of the same layers
  CHECK(model.parameters() == parameters);
  model.layer_pattern[0] = '*';
  CHECK(refused() == "model.json at /layer_pattern");
  model.layer_pattern += "M";
  CHECK(refused() == "model.json at /layer_pattern");
  ModelSpec two_parts = hybrid_model("granite-4.0-h-small");
  two_parts.layer_pattern = "M";
  model = two_parts;
  CHECK(refused() == "model.json at /layer_pattern");
}

TEST_CASE("a model file with state spaces is read back as it was written") {
  for (const char* name : {"nemotron-3-super-120b-a12b", "granite-4.0-h-small"}) {
    const ModelSpec model = hybrid_model(name);
    const Result<ModelSpec> again = parse_model(model_to_json(model), "model.json");
    REQUIRE(again.ok());
    CHECK(*again == model);
    CHECK_FALSE(not_executed(model).empty());
  }
}

TEST_CASE("where layers have one part each, only those without a mixer have an MLP") {
  const ModelSpec parts = hybrid_model("nemotron-3-nano-30b-a3b");
  const ModelSpec whole = hybrid_model("7b");
  for (const TokenMixer mixer : kTokenMixers) {
    CHECK(parts.has_mlp(mixer) == (mixer == TokenMixer::none));
    CHECK(whole.has_mlp(mixer));
  }
  CHECK(parts.mixer_before_mlp() == TokenMixer::none);
  CHECK(whole.mixer_before_mlp() == TokenMixer::attention);
}

TEST_CASE(
    "numbers that are not finite, as Python writes them, are read, and refused where they count") {
  std::string text = slurp(family_path("bamba-9b"));
  const std::string begin = R"({"time_step_limit": [0.0, Infinity], "x": {"__float__": "NaN"},)";
  const Result<ModelSpec> model = parse_model(begin + text.substr(1), "config.json");
  REQUIRE(model.ok());
  ModelSpec expected = parse_model(text, "config.json").value();
  expected.constants->other_arithmetic = {"unknown config.json key 'x'"};
  CHECK(*model == expected);
  const auto refused = [&](const std::string& key, const std::string& value) {
    std::string changed = text;
    const std::size_t at = changed.find("\"" + key + "\": ") + key.size() + 4;
    changed.replace(at, changed.find(',', at) - at, value);
    return parse_model(changed, "config.json").error();
  };
  CHECK(refused("rms_norm_eps", "NaN").found == "NaN");
  CHECK(refused("rms_norm_eps", "NaN").where == "config.json at /rms_norm_eps");
  CHECK(refused("hidden_size", R"({"__float__": "-Infinity"})").found == "-Infinity");
}

TEST_CASE("impossible state spaces and layers of one part are refused with the field") {
  const auto refused = [](const char* field, auto change) {
    ModelSpec model = hybrid_model("nemotron-3-nano-30b-a3b");
    change(model);
    const Result<ModelSpec> read = parse_model(model_to_json(model), "model.json");
    REQUIRE_FALSE(read.ok());
    INFO(read.error().message());
    CHECK(read.error().where == "model.json at /" + std::string(field));
  };
  refused("ssm/groups", [](ModelSpec& m) { m.ssm.groups = 5; });
  refused("ssm/layers", [](ModelSpec& m) { m.ssm.layers = 29; });
  refused("ssm/layers", [](ModelSpec& m) { m.sliding_window = 128, m.windowed_layers = 1; });
  refused("ssm/conv_kernel", [](ModelSpec& m) { m.ssm.conv_kernel = 4096; });
  refused("mlp_only_layers", [](ModelSpec& m) { m.ssm = {}, m.mlp_only_layers = 52; });
  refused("mlp_only_layers", [](ModelSpec& m) { m.post_norms = true; });
  refused("mlp_only_layers", [](ModelSpec& m) { m.moe.every = 2; });
}
