// Families of 2025 and 2026, and older ones that are still finetuned: parameters against the
// modules that transformers 5.24 builds from the same files, with the routers' corrections, which
// it keeps as buffers; blocks, deviations and refusals.
#include <string>
#include <utility>
#include <vector>

#include "tests/core/model/config_files.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;

namespace {

ModelSpec spec_of(const char* name) { return family_reading(name).model; }

std::vector<std::string> deviations(const char* name) {
  return spec_of(name).constants->other_arithmetic;
}

ModelSpec changed_spec(const char* name, const char* key, const Json& value) {
  const Result<ModelSpec> model = parse_model(changed_family(name, key, value).dump(), "c.json");
  INFO(name << " " << key << ": " << (model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

}  // namespace

TEST_CASE("further dense families have the parameters of transformers' modules") {
  const std::pair<const char*, std::int64_t> models[] = {
      {"cwm-32b", 32'581'097'472},
      {"exaone3-7.8b", 7'818'448'896},
      {"falcon-7b", 6'921'720'704},
      {"falcon-40b", 41'303'293'952},
      {"falcon-rw-1b", 1'311'625'216},
      {"gpt-neo-2.7b", 2'651'307'520},
      {"granite-swash-2b", 2'144'463'840},
      {"helium-2b", 2'172'643'840},
      {"hyperclovax-think-14b", 14'748'112'896},
      {"iquest-coder-40b", 39'794'283'520},
      {"jais2-8b", 8'090'401'280},
      {"minicpm3-4b", 4'073'875'968},
      {"ministral-8b", 8'019'808'256},
      {"mpt-7b", 6'649'286'656},
      {"persimmon-8b", 9'397'175'296},
      {"phi-4-multimodal", 3'836'021'760},
      {"stablelm2-1.6b", 1'644'515'328},
      {"starcoder-15b", 15'517'456'384},
      {"vaultgemma-1b", 1'038'741'120},
      // Language models of larger ones.
      {"glm-4.1v-9b-multimodal", 8'779'522'048 + std::int64_t{151'552} * 4096},
      {"muse-glimmer-30b-multimodal", 26'509'949'440 + std::int64_t{202'048} * 6656},
      // Less the rows of two positions; plus gains that its norms do not have.
      {"opt-6.7b", 6'658'473'984 - 2 * 4096},
      {"nanochat-d32", 1'879'048'192 + 65 * 2048},
      {"olmo-7b", 6'888'095'744 + 65 * 4096}};
  for (const auto& [name, parameters] : models) {
    INFO(name);
    CHECK(spec_of(name).parameters() == parameters);
    CHECK(spec_of(name).active_parameters() == parameters);
  }
}

TEST_CASE("further mixtures have the parameters of transformers' modules") {
  struct Mixture {
    const char* name;
    std::int64_t total;
    std::int64_t idle;  ///< experts per layer that a token does not visit, times layers and size
  };
  const Mixture models[] = {
      {"aria-25b-text", 24'869'091'840, std::int64_t{58} * 28 * 3 * 2560 * 1664},
      // Less the gains of the norms behind its experts.
      {"a.x-k1", 518'983'052'288 + 60 * 192 - 60 * 7168, std::int64_t{184} * 60 * 3 * 7168 * 2048},
      // Less a bias for each head of the gates.
      {"beam-501b-a23b", 501'267'599'808 + 49 * 256 - 52 * 48,
       std::int64_t{248} * 49 * 3 * 5120 * 2560},
      {"cohere2-moe", 159'685'681'152, std::int64_t{120} * 32 * 3 * 4096 * 3072},
      {"flex-olmo-7x7b", 33'270'665'216, std::int64_t{2} * 32 * 3 * 4096 * 11008},
      {"flint-40b", 39'785'287'456, std::int64_t{250} * 47 * 3 * 2048 * 512},
      {"granitemoe-swa", 3'449'789'184, std::int64_t{32} * 32 * 3 * 1536 * 512},
      {"kolibri-1", 78'103'055'360 + 50 * 384, std::int64_t{378} * 50 * 3 * 2560 * 512},
      {"mellum2-12b-a2.5b", 12'149'923'072, std::int64_t{56} * 28 * 3 * 2304 * 896},
      {"qwen3-omni-30b-a3b", 30'532'122'624 + std::int64_t{2} * (152'064 - 151'936) * 2048,
       std::int64_t{120} * 48 * 3 * 2048 * 768},
      {"sarvam-30b", 32'152'648'064 + 18 * 128, std::int64_t{122} * 18 * 3 * 4096 * 1024},
      {"sarvam-105b", 106'031'763'456 + 31 * 128, std::int64_t{120} * 31 * 3 * 4096 * 2048}};
  for (const Mixture& each : models) {
    INFO(each.name);
    CHECK(spec_of(each.name).parameters() == each.total);
    CHECK(spec_of(each.name).active_parameters() == each.total - each.idle);
  }
}

// Of torch.utils.flop_counter on small modules, forward and backward: 2,048-token sequences below.
TEST_CASE("FLOPs of further families are those of their products") {
  // One key-value head; attention and MLP of one norm's output. The head is a product as well.
  const ModelSpec falcon = spec_of("falcon-7b");
  const double h = 4544;
  const double layer = h * (h + 2 * 64) + h * h + 2 * h * 18176;
  CHECK(falcon.flops_per_token(2048).in(kFlop) ==
        6 * (32 * layer + 65024 * h) + 6 * 32 * 2 * h * 2048);
  // Sinks are no products; 35 of 49 layers attend to 513 tokens.
  const ModelSpec flint = spec_of("flint-40b");
  const double attention = 2048.0 * (4096 + 2 * 512) + 4096.0 * 2048;
  const double experts = 2048.0 * 256 + 3 * 2048.0 * (6 * 512 + 1024);
  const double products = 49 * attention + 2 * 3 * 2048.0 * 6144 + 47 * experts + 150144.0 * 2048;
  CHECK(flint.flops_per_token(8192).in(kFlop) ==
        6 * products + 6 * 2 * 4096.0 * (35 * 513 + 14 * 8192));
}

TEST_CASE("blocks of further dense families are read as what they are") {
  CHECK(spec_of("cwm-32b").windowed_layers == 48);
  CHECK(spec_of("cwm-32b").constants->rope.scaling == RopeScaling::llama3);
  CHECK(spec_of("exaone3-7.8b").layers == 32);
  CHECK(spec_of("falcon-7b").kv_heads == 1);
  CHECK(spec_of("falcon-7b").parallel_block);
  CHECK(spec_of("falcon-40b").kv_heads == 8);
  CHECK_FALSE(spec_of("falcon-40b").parallel_block);
  CHECK(spec_of("falcon-rw-1b").position == PositionEmbedding::alibi);
  CHECK(spec_of("falcon-rw-1b").mlp_bias);
  CHECK(spec_of("gpt-neo-2.7b").windowed_layers == 16);
  CHECK_FALSE(spec_of("gpt-neo-2.7b").qkv_bias);
  CHECK(spec_of("granite-swash-2b").attention_sinks);
  CHECK(spec_of("granite-swash-2b").windowed_layers == 18);
  CHECK(spec_of("hyperclovax-think-14b").post_norms);
  CHECK(spec_of("jais2-8b").activation == Activation::squared_relu);
  CHECK(spec_of("minicpm3-4b").mla.v_head_dim == 64);
  CHECK(spec_of("ministral-8b").windowed_layers == 27);
  CHECK(spec_of("muse-glimmer-30b-multimodal").attention_output_gate);
  CHECK(spec_of("muse-glimmer-30b-multimodal").windowed_layers == 39);
  CHECK(spec_of("mpt-7b").position == PositionEmbedding::alibi);
  CHECK(spec_of("persimmon-8b").qk_norm);
  CHECK(spec_of("stablelm2-1.6b").gated_mlp);
  CHECK(spec_of("stablelm2-1.6b").constants->rope.rotated_part == 0.25);
  CHECK(spec_of("starcoder-15b").kv_heads == 1);
  CHECK_FALSE(spec_of("vaultgemma-1b").post_norms);
  CHECK(spec_of("vaultgemma-1b").windowed_layers == 13);
}

TEST_CASE("blocks of further mixtures are read as what they are") {
  CHECK(spec_of("beam-501b-a23b").attention_output_gate);
  CHECK(spec_of("beam-501b-a23b").moe.router_groups == 8);
  CHECK(spec_of("beam-501b-a23b").windowed_layers == 43);
  CHECK(spec_of("cohere2-moe").parallel_block);
  CHECK(spec_of("cohere2-moe").ffn_hidden == 24576);
  CHECK(spec_of("cohere2-moe").moe.router_score == RouterScore::sigmoid);
  CHECK(spec_of("cohere2-moe").windowed_layers == 24);
  CHECK(spec_of("flint-40b").attention_sinks);
  CHECK(spec_of("flint-40b").moe.first_dense_layers == 2);
  CHECK(spec_of("granitemoe-swa").moe.shared_ffn_hidden == 1024);
  CHECK(spec_of("kolibri-1").post_norms);
  CHECK(spec_of("kolibri-1").windowed_layers == 40);
  CHECK(spec_of("mellum2-12b-a2.5b").windowed_layers == 21);
  CHECK(spec_of("sarvam-30b").qk_norm);
  CHECK(spec_of("sarvam-30b").moe.router_scaling == 2.5);
  CHECK(spec_of("sarvam-105b").latent());
  CHECK(spec_of("sarvam-105b").constants->rope.scaling == RopeScaling::yarn);
}

TEST_CASE("what further families compute otherwise than a field says is named") {
  using Words = std::vector<std::string>;
  CHECK(deviations("cwm-32b").empty());
  CHECK(deviations("sarvam-30b").empty());
  CHECK(deviations("helium-2b") == Words{"rotary pairs next to each other"});
  CHECK(deviations("a.x-k1") ==
        Words{"a norm behind the experts of a layer, whose gain is not counted"});
  CHECK(deviations("olmo-7b") ==
        Words{"norms that subtract the mean", "norms without gains, which are counted"});
  CHECK(deviations("minicpm3-4b") ==
        Words{"rotated pairs that are half a head apart in latent attention",
              "word embeddings multiplied by 12", "residuals multiplied by 0.1778",
              "logits divided by 2560 / 256"});
  CHECK(deviations("hyperclovax-think-14b").back() == "attention scores multiplied by 0.0078125");
  // A factor that is what attention divides by without it changes nothing.
  const ModelSpec usual =
      changed_spec("granite-swash-2b", "attention_multiplier", 0.08838834764831845);
  CHECK(usual.constants->other_arithmetic.empty());
  CHECK(
      family_reading("phi-4-multimodal").remarks.front() ==
      "not planned: embd_layer, speech_lora, vision_lora of the model's file; the plan is for its "
      "language model alone");
}

TEST_CASE("the text of Qwen's Omni models is read from their thinker") {
  const ModelReading omni = family_reading("qwen3-omni-30b-a3b");
  CHECK(omni.model.architecture == "qwen3_omni_moe_text");
  CHECK(omni.remarks.front() ==
        "not planned: talker_config and audio_config and vision_config of the model's file; the "
        "plan is for its language model alone");
  Json file = Json::parse(slurp(family_path("qwen3-omni-30b-a3b")));
  file["thinker_config"]["text_config"]["num_experts"] = 0;
  CHECK(refused_family(file).where == "config.json at /thinker_config/text_config/num_experts");
}

TEST_CASE("rotary bases of each layer replace the one of all") {
  const Json bases = Json::parse(
      "[5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,5e5,"
      "5e5,0]");
  const ModelSpec mixed = changed_spec("granite-swash-2b", "layer_rope_theta", bases);
  CHECK(mixed.constants->rope.theta == 5e5);
  CHECK(mixed.constants->other_arithmetic.back() == "layers without rotary positions");
  CHECK(changed_spec("granite-swash-2b", "layer_rope_theta", std::vector<int>(24)).position ==
        PositionEmbedding::none);
  CHECK(refused_family(changed_family("granite-swash-2b", "layer_rope_theta", {1, 2})).where ==
        "config.json at /layer_rope_theta");
}

TEST_CASE("values of further families that would make another block are refused") {
  const auto where = [](const char* name, const char* key, const Json& value) {
    const std::string place = refused_family(changed_family(name, key, value)).where;
    return place.substr(place.rfind('/') + 1);
  };
  CHECK(where("beam-501b-a23b", "attention_bias", true) == "attention_bias");
  CHECK(where("cohere2-moe", "expert_selection_fn", "hash") == "expert_selection_fn");
  CHECK(where("helium-2b", "head_dim", 64) == "head_dim");
  CHECK(where("iquest-coder-40b", "use_sliding_window", true) == "use_sliding_window");
  CHECK(where("mpt-7b", "attn_config", {{"alibi", false}}) == "attn_config");
  CHECK(where("mpt-7b", "no_bias", false) == "no_bias");
  CHECK(where("opt-6.7b", "word_embed_proj_dim", 512) == "word_embed_proj_dim");
  CHECK(where("opt-6.7b", "do_layer_norm_before", false) == "do_layer_norm_before");
  CHECK(where("stablelm2-1.6b", "qk_layernorm", true) == "qk_layernorm");
  CHECK(where("starcoder-15b", "add_cross_attention", true) == "add_cross_attention");
  Json apertus = changed_family("apertus-8b", "model_type", "apertus1p5_text");
  CHECK(parse_model(apertus.dump(), "c.json").ok());
  apertus["output_vocab_size"] = 131'000;
  CHECK(refused_family(apertus).where == "config.json at /output_vocab_size");
}

TEST_CASE("families with an operator without a price are refused by its name") {
  const auto found = [](const char* type) {
    return refused_family(changed_family("llama2-70b", "model_type", type));
  };
  CHECK(mentions(found("lfm3"), "short convolutions next to windowed attention"));
  CHECK(mentions(found("lfm3"), "the nearest supported family is 'lfm2'"));
  CHECK(mentions(found("axk2"), "norms with a gate of low rank"));
  CHECK(mentions(found("lara_mini"), "gated delta nets next to windowed attention"));
  CHECK(mentions(found("inkling_text"), "relative positions"));
  CHECK(mentions(found("hrm_text"), "layers that run several times"));
  CHECK(mentions(found("diffllama"), "differential attention"));
  CHECK(mentions(found("bitnet"), "ternary weights"));
  CHECK(mentions(found("xlnet"), "not a decoder-only language model"));
}
