// Counts derived from shapes, compared with the numbers published by the authors.
#include "core/model/model.hpp"

#include <cmath>
#include <cstdint>
#include <string>

#include "core/base/embedded.hpp"
#include "core/model/model_formats_io.hpp"
#include "core/model/model_io.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ModelSpec catalog_model(const std::string& name) {
  const Result<ModelSpec> model = load_model(name);
  INFO(name << ": " << (model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

struct Published {
  const char* name;
  std::int64_t parameters;
};

// As printed on the model cards (the tensors stored, tied weights once).
constexpr Published kPublished[] = {
    {"gpt2", 124'439'808},
    {"gpt2-medium", 354'823'168},
    {"gpt2-large", 774'030'080},
    {"gpt2-xl", 1'557'611'200},
    {"llama-7b", 6'738'415'616},
    {"llama-13b", 13'015'864'320},
    {"llama-30b", 32'528'943'616},
    {"llama-65b", 65'285'660'672},
    {"llama2-7b", 6'738'415'616},
    {"llama2-13b", 13'015'864'320},
    {"llama2-70b", 68'976'648'192},
    {"llama3-8b", 8'030'261'248},
    {"llama3-70b", 70'553'706'496},
    {"llama3.1-8b", 8'030'261'248},
    {"llama3.1-70b", 70'553'706'496},
    {"llama3.1-405b", 405'853'388'800},
    {"llama3.2-1b", 1'235'814'400},
    {"llama3.2-3b", 3'212'749'824},
    {"mistral-7b", 7'241'732'096},
    {"mistral-7b-v0.3", 7'248'023'552},
    {"qwen2-0.5b", 494'032'768},
    {"qwen2-1.5b", 1'543'714'304},
    {"qwen2-7b", 7'615'616'512},
    {"qwen2-72b", 72'706'203'648},
    {"qwen2.5-3b", 3'085'938'688},
    {"qwen2.5-14b", 14'770'033'664},
    {"qwen2.5-32b", 32'763'876'352},
    {"qwen3-0.6b", 596'049'920},
    {"qwen3-1.7b", 1'720'574'976},
    {"qwen3-4b", 4'022'468'096},
    {"qwen3-8b", 8'190'735'360},
    {"qwen3-14b", 14'768'307'200},
    {"qwen3-32b", 32'762'123'264},
    {"gemma-2b", 2'506'172'416},
    {"gemma-7b", 8'537'680'896},
    {"gemma2-2b", 2'614'341'888},
    {"gemma2-9b", 9'241'705'984},
    {"gemma2-27b", 27'227'128'320},
    {"gemma3-1b", 999'885'952},
    // Totals of the Hub's files less the encoder of images (SigLIP) and its projection.
    {"gemma3-4b", 3'880'263'168},
    {"gemma3-12b", 11'766'034'176},
    {"gemma3-27b", 27'009'346'304},
    {"phi-1.5", 1'418'270'720},
    {"phi-2", 2'779'683'840},
    {"phi-3-mini", 3'821'079'552},
    {"phi-4", 14'659'507'200},
    {"bloom-7b1", 7'069'016'064},
    {"bloom-176b", 176'247'271'424},
    {"mixtral-8x7b", 46'702'792'704},
    {"mixtral-8x22b", 140'620'634'112},
    {"qwen1.5-moe-a2.7b", 14'315'784'192},
    {"qwen2-57b-a14b", 57'408'658'944},
    {"qwen3-30b-a3b", 30'532'122'624},
    {"qwen3-235b-a22b", 235'093'634'560},
    {"qwen3-coder-480b-a35b", 480'154'875'392},
    {"deepseek-v2-lite", 15'706'484'224},
    {"deepseek-v2", 235'741'434'880},
    {"deepseek-v3",
     671'026'419'200},  // with e_score_correction_bias, without multi-token prediction
    {"kimi-k2", 1'026'408'232'448},
    {"kimi-k2.5", 1'026'408'232'448},
    {"gpt-oss-20b", 20'914'757'184},
    {"gpt-oss-120b", 116'829'156'672},
    {"olmoe-7b", 6'919'161'856},
    {"olmo3-7b", 7'298'011'136},
    {"olmo3-32b", 32'233'522'176},
    // Published totals without what their sources name: delta_model_test.cpp.
    {"glm-4.5-air", 106'852'251'264},
    {"glm-4.6", 352'797'829'024},
    {"minimax-m2", 228'689'764'864},
    {"qwen3-next-80b-a3b", 79'674'391'296},
    {"qwen3.5-27b", 26'895'998'464},
    {"qwen3.5-35b-a3b", 34'660'610'688},
    // Totals of transformers' modules: state_space_model_test.cpp.
    {"nemotron-h-8b", 8'100'852'736},
    {"nemotron-nano-9b-v2", 8'888'227'328},
    {"nemotron-3-nano-30b-a3b", 31'577'940'288},
    // Totals of transformers 5.24's modules, with the routers' corrections; of Ling and MiMo, sums
    // over the shapes of their own code.
    {"command-a", 111'057'580'032},
    {"command-r-plus", 103'810'674'688},
    {"dots-llm1", 142'774'381'696},
    {"ernie4.5-21b-a3b", 21'825'437'888},
    {"exaone4-32b", 32'003'216'384},
    {"gemma3-270m", 268'098'176},
    {"glm-4-9b", 9'400'094'720},
    {"glm-4.7-flash", 29'943'393'920},
    {"gemma4-12b", 11'907'350'272},
    {"gemma4-31b", 30'697'345'280},
    {"gemma4-26b-a4b", 25'233'141'760},
    {"mistral-small-4-119b-a6b", 118'972'826'624},
    {"lfm2-350m", 354'483'968},
    {"lfm2-1.2b", 1'170'340'608},
    {"lfm2-2.6b", 2'569'272'320},
    {"lfm2-8b-a1b", 8'339'930'560},
    {"phi-4-mini", 3'836'021'760},
    {"gpt-j-6b", 6'050'882'784},
    {"gpt-neox-20b", 20'554'567'680},
    {"granite3.3-8b", 8'170'864'640},
    {"hunyuan-a13b", 80'393'183'232},
    {"internlm3-8b", 8'804'241'408},
    {"ling-1t", 999'705'328'640},
    {"mimo-7b", 7'622'619'136},
    {"ministral3-8b", 8'489'553'920},
    {"mistral-nemo-12b", 12'247'782'400},
    {"mistral-small-24b", 23'572'403'200},
    {"moonlight-16b-a3b", 15'960'110'208},
    {"pythia-1.4b", 1'414'647'808},
    {"pythia-12b", 11'846'072'320},
    {"pythia-160m", 162'322'944},
    {"pythia-1b", 1'011'781'632},
    {"pythia-2.8b", 2'775'208'960},
    {"pythia-410m", 405'334'016},
    {"pythia-6.9b", 6'857'302'016},
    {"pythia-70m", 70'426'624},
    {"qwen3.5-0.8b", 752'393'024},
    {"qwen3.5-122b-a10b", 122'111'526'912},
    {"qwen3.5-397b-a17b", 396'346'350'336},
    {"qwen3.5-4b", 4'205'751'296},
    {"qwen3.5-9b", 8'953'803'264},
    {"seed-oss-36b", 36'151'104'512},
    {"smollm2-1.7b", 1'711'376'384},
    {"smollm2-135m", 134'515'008},
    {"smollm2-360m", 361'821'120},
    {"smollm3-3b", 3'075'098'624},
    {"starcoder2-3b", 3'030'371'328},
    {"tinyllama-1.1b", 1'100'048'384},
    {"yi-34b", 34'388'917'248},
    {"yi-6b", 6'061'035'520},
    // sparse_model_test.cpp.
    {"deepseek-v3.2", 671'877'944'064},
    {"glm-5", 743'911'218'432},
};

}  // namespace

TEST_CASE("parameter counts equal the published ones exactly") {
  for (const Published& published : kPublished) {
    INFO(published.name);
    CHECK(catalog_model(published.name).parameters() == published.parameters);
  }
}

TEST_CASE("every catalog file that states a published count agrees with its shapes") {
  int stated = 0;
  for (const EmbeddedFile& file : embedded_models()) {
    INFO(file.name);
    const Result<ModelFile> model =
        read_model_file(parse_json(file.content, file.name).value(), file.name);
    REQUIRE(model.ok());
    CHECK(model->model.name == file.name);
    CHECK_FALSE(model->model.source.empty());
    if (model->published_parameters == 0) continue;
    ++stated;
    CHECK(model->model.parameters() == model->published_parameters);
  }
  CHECK(stated == static_cast<int>(std::size(kPublished)));
}

TEST_CASE("the sizes of the GPT-3 family match their names") {
  const std::pair<const char*, double> named[] = {
      {"gpt3-125m", 0.125e9}, {"gpt3-350m", 0.35e9}, {"gpt3-760m", 0.76e9}, {"gpt3-1.3b", 1.3e9},
      {"gpt3-2.7b", 2.7e9},   {"gpt3-6.7b", 6.7e9},  {"gpt3-13b", 13e9},    {"gpt3-175b", 175e9}};
  for (const auto& [name, size] : named) {
    INFO(name);
    CHECK(static_cast<double>(catalog_model(name).parameters()) == Approx(size).epsilon(0.02));
  }
}

TEST_CASE("Megatron's sizes follow the formula of its paper") {
  // P = 12·l·h²·(1 + 13/(12h) + (V + s)/(12·l·h)), equation 2 of arXiv 2104.04473; the paper omits
  // the final norm (2h). The table prints billions.
  const std::pair<const char*, double> printed[] = {
      {"megatron-1.7b", 1.7},   {"megatron-3.6b", 3.6},   {"megatron-7.5b", 7.5},
      {"megatron-18b", 18.4},   {"megatron-39b", 39.1},   {"megatron-76b", 76.1},
      {"megatron-145b", 145.6}, {"megatron-310b", 310.1}, {"megatron-530b", 529.6},
      {"megatron-1t", 1008.0}};
  for (const auto& [name, billions] : printed) {
    INFO(name);
    const ModelSpec model = catalog_model(name);
    const std::int64_t l = model.layers;
    const std::int64_t h = model.hidden;
    const std::int64_t by_formula = 12 * l * h * h + 13 * l * h + (51'200 + 2'048) * h;
    CHECK(model.parameters() == by_formula + 2 * h);
    CHECK(std::abs(static_cast<double>(model.parameters()) / 1e9 - billions) <= 0.06);
  }
}

TEST_CASE("embedding, layers and head add up to the parameters") {
  for (const CatalogModel& entry : model_catalog()) {
    const ModelSpec model = catalog_model(entry.name);
    INFO(entry.name);
    std::int64_t layers = 0;
    int layer = 0;
    for (const TokenMixer mixer : kTokenMixers) {
      for (int i = 0; i < model.layers_with(mixer); ++i, ++layer) {
        layers += model.layer_parameters(model.layer_kind(layer), mixer).total();
      }
    }
    CHECK(layer == model.layers);
    CHECK(model.parameters() == model.embedding_parameters() + layers + model.head_parameters());
  }
}

TEST_CASE("a GPT-2 layer splits into matrices, sharded biases and replicated vectors") {
  const ModelSpec::LayerParameters layer = catalog_model("gpt2").layer_parameters();
  CHECK(layer.attention_matrices == 4 * 768 * 768);
  CHECK(layer.mlp_matrices == 8 * 768 * 768);
  CHECK(layer.sharded_vectors == 3 * 768 + 4 * 768);  // qkv and up-projection biases
  CHECK(layer.replicated == 2 * 2 * 768 + 2 * 768);   // two norms, two output biases
}

TEST_CASE("grouped key-value heads shrink only the key and value projections") {
  const ModelSpec model = catalog_model("llama3-8b");
  CHECK(model.query_width() == 4096);
  CHECK(model.kv_width() == 1024);
  CHECK(model.layer_parameters().attention_matrices == 2 * 4096 * 4096 + 2 * 4096 * 1024);
}

TEST_CASE("norms per layer follow the block") {
  CHECK(catalog_model("phi-2").norms_per_layer() == 1);
  CHECK(catalog_model("llama2-7b").norms_per_layer() == 2);
  CHECK(catalog_model("gemma2-9b").norms_per_layer() == 4);
}

TEST_CASE("tying the embeddings saves one vocabulary times hidden") {
  ModelSpec model = catalog_model("llama2-7b");
  const std::int64_t untied = model.parameters();
  model.tied_embeddings = true;
  CHECK(untied - model.parameters() == 32'000LL * 4096);
}

TEST_CASE("model FLOPs equal Megatron's formula less its recomputed forward pass") {
  // Per token: 96·l·h²·(1 + s/(6h) + V/(16·l·h)) with full recompute, appendix of arXiv 2104.04473:
  // there the layers run 4 passes, here 3; the head runs 3 in both.
  const ModelSpec model = catalog_model("gpt3-175b");
  const double l = 96;
  const double h = 12288;
  const double s = 2048;
  const double with_recompute_layers = 96 * l * h * h * (1 + s / (6 * h));
  const double head = 6 * 50257 * h;
  CHECK(model.flops_per_token(2048).in(kFlop) ==
        Approx(with_recompute_layers * 3 / 4 + head).epsilon(1e-12));
}

TEST_CASE("a windowed layer attends to no more than its window") {
  ModelSpec model = catalog_model("mistral-7b");
  REQUIRE(model.sliding_window == 4096);
  const Flops short_sequence = model.flops_per_token(4096);
  CHECK(model.flops_per_token(8192) == short_sequence);
  CHECK(model.flops_per_token(2048) < short_sequence);
  model.windowed_layers = 16;  // half of them: 16 · 12 · 4096 · 4096 more
  CHECK((model.flops_per_token(8192) - short_sequence).in(kFlop) ==
        Approx(16.0 * 12 * 4096 * 4096));
}

TEST_CASE("a causal mask needs half of the scores, of a window all but the first ones") {
  ModelSpec model = catalog_model("llama2-7b");
  const double scores = 12.0 * 32 * 4096;  // per key
  const auto saved = [&](double span) {
    return (model.flops_per_token(span) - model.flops_per_token(span, false, true)).in(kFlop);
  };
  CHECK(saved(4096) == Approx(scores * 4096 / 2));
  // The i-th of 8,192 queries sees min(i, 1,024) keys: 1,024 − 1,024²/2/8,192 on average.
  model.sliding_window = 1024;
  model.windowed_layers = 32;
  CHECK(saved(8192) == Approx(scores * 64));
}

TEST_CASE("six FLOPs per parameter is the bulk of a training token") {
  const ModelSpec model = catalog_model("llama2-70b");
  const double six = 6 * static_cast<double>(model.parameters());
  CHECK(model.flops_per_token(4096).in(kFlop) > 0.98 * six);
  CHECK(model.flops_per_token(4096).in(kFlop) < 1.10 * six);
}
