// Sparse attention (DSA): counts against transformers' modules, FLOPs by hand, files and refusals.
#include <cstdint>
#include <string>

#include "core/json/json_io.hpp"
#include "core/model/model.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;

namespace {

ModelSpec sparse_model(const std::string& name = "deepseek-v3.2") {
  const Result<ModelSpec> model = load_model(name);
  INFO(name << ": " << (model ? "" : model.error().message()));
  REQUIRE(model.ok());
  return *model;
}

Json sparse_config(const std::string& name) {
  return Json::parse(slurp(ECHELON_SOURCE_DIR "/tests/core/model/configs/" + name + ".json"));
}

Result<ModelSpec> read_sparse(const Json& document) {
  return parse_model(document.dump(), "config.json");
}

}  // namespace

TEST_CASE("DeepSeek-V3.2 and GLM-5 have as many parameters as transformers' modules") {
  // Of DeepseekV32ForCausalLM and GlmMoeDsaForCausalLM with the defaults of their configuration
  // classes, on the meta device (transformers 5.24); its buffers are the routers' biases, 256 in 58
  // and in 75 layers.
  CHECK(sparse_model("deepseek-v3.2").parameters() == 671'877'929'216 + 256 * 58);
  CHECK(sparse_model("glm-5").parameters() == 743'911'199'232 + 256 * 75);
}

TEST_CASE("an indexer adds its three projections and the norm of its key") {
  const ModelSpec sparse = sparse_model();
  ModelSpec full = sparse;
  full.dsa = {};
  // 64 heads of 128 from a latent of 1536, one key of 128 and 64 weights from 7168.
  CHECK(sparse.layer_parameters().indexer_matrices == 1536 * 64 * 128 + 7168 * (128 + 64));
  CHECK(sparse.layer_parameters().total() - full.layer_parameters().total() ==
        1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128);
  CHECK(full.parameters() == load_model("deepseek-v3")->parameters());
}

TEST_CASE("a query of sparse attention sees the top-k keys, its indexer all of them") {
  const ModelSpec sparse = sparse_model();
  const auto flops = [](const ModelSpec& model, double span) {
    return model.flops_per_token(span).in(kFlop);
  };
  // Beyond 2048 keys only the indexer's scores grow: 2 · 64 · 128 per key and layer.
  CHECK(flops(sparse, 65'536) - flops(sparse, 32'768) ==
        Approx(61 * 2.0 * 64 * 128 * 32'768).epsilon(1e-9));
  // Up to 2048 keys attention is a full one.
  ModelSpec full = sparse;
  full.dsa = {};
  const double projections = 1536.0 * 64 * 128 + 7168.0 * (128 + 64);
  for (const double span : {1024.0, 2048.0}) {
    CHECK(flops(sparse, span) - flops(full, span) ==
          Approx(61 * (4 * projections + 64.0 * 128 * 6 * span)).epsilon(1e-9));
  }
  CHECK(flops(sparse, 65'536) < 0.5 * flops(full, 65'536));
}

TEST_CASE("configurations with an indexer are read as the catalog has them") {
  for (const std::string name : {"deepseek-v3.2", "glm-5"}) {
    const Result<ModelSpec> model = read_sparse(sparse_config(name));
    INFO(name << (model ? "" : model.error().message()));
    REQUIRE(model.ok());
    ModelSpec same = *model;
    const ModelSpec known = sparse_model(name);
    same.name = known.name;
    same.source = known.source;
    CHECK(same.prediction_modules == 1);
    same.prediction_modules = 0;  // the catalog leaves them out
    INFO(model_to_json(same) << model_to_json(known));
    CHECK(same == known);
  }
}

TEST_CASE("values that a file leaves out are those of the configuration class") {
  for (const auto& [name, heads] : {std::pair("deepseek-v3.2", 64), std::pair("glm-5", 32)}) {
    Json config = sparse_config(name);
    for (const char* key : {"index_head_dim", "index_n_heads", "index_topk"}) config.erase(key);
    const Result<ModelSpec> model = read_sparse(config);
    REQUIRE(model.ok());
    CHECK(model->dsa.topk == 2048);
    CHECK(model->dsa.index_heads == heads);
    CHECK(model->dsa.index_head_dim == 128);
  }
  for (const auto& [name, epsilon] : {std::pair("deepseek-v3.2", 1e-6), std::pair("glm-5", 1e-5)}) {
    Json config = sparse_config(name);
    for (const char* key : {"routed_scaling_factor", "rms_norm_eps"}) config.erase(key);
    const Result<ModelSpec> model = read_sparse(config);
    REQUIRE(model.ok());
    CHECK(model->moe.router_scaling == 2.5);
    CHECK(model->constants->norm_epsilon == epsilon);
  }
}

TEST_CASE("GLM-5's indexer rotates neighbouring numbers and has no Hadamard transform") {
  const SparseAttention deepseek = sparse_model("deepseek-v3.2").dsa;
  CHECK_FALSE(deepseek.rope_interleaved);
  CHECK(deepseek.hadamard);
  const SparseAttention glm = sparse_model("glm-5").dsa;
  CHECK(glm.rope_interleaved);
  CHECK_FALSE(glm.hadamard);
  Json config = sparse_config("glm-5");
  config.erase("indexer_rope_interleave");
  CHECK(read_sparse(config)->dsa.rope_interleaved);
  config["indexer_rope_interleave"] = false;
  CHECK_FALSE(read_sparse(config)->dsa.rope_interleaved);
  const ModelSpec model = sparse_model("glm-5");
  CHECK(*parse_model(model_to_json(model), "model.json") == model);
}

TEST_CASE("layers that attend to another layer's keys are refused, lists of full ones are not") {
  const auto refusal = [](const char* key, const Json& value) {
    Json config = sparse_config("glm-5");
    config[key] = value;
    const Result<ModelSpec> model = read_sparse(config);
    return model ? std::string("read") : model.error().message();
  };
  CHECK(refusal("index_topk_freq", 1) == "read");
  CHECK(refusal("index_topk_freq", 0) == "read");  // the class takes 1
  CHECK(refusal("index_topk_freq", 4).find("/index_topk_freq") != std::string::npos);
  CHECK(refusal("index_topk_pattern", "FF").find("78 layers") != std::string::npos);
  CHECK(refusal("index_topk_pattern", std::string(78, 'x')).find("78 layers") != std::string::npos);
  CHECK(refusal("index_topk_pattern", std::string(78, 'F')) == "read");
  CHECK(refusal("index_topk_pattern", std::string(77, 'F') + "S").find("another layer's indexer") !=
        std::string::npos);
  Json kinds = Json::array();
  for (int i = 0; i < 78; ++i) kinds.push_back("full");
  CHECK(refusal("indexer_types", kinds) == "read");
  CHECK(refusal("index_topk_pattern", kinds) == "read");
  CHECK(refusal("indexer_types", Json::array()).find("78 layers") != std::string::npos);
  CHECK(refusal("indexer_types", Json::array({"full"})).find("78 layers") != std::string::npos);
  CHECK(refusal("layer_types", kinds).find("/layer_types") != std::string::npos);
  CHECK(refusal("layer_types", Json(std::vector<std::string>(78, "indexed_attention"))) == "read");
  kinds[5] = "shared";
  CHECK(refusal("indexer_types", kinds).find("/indexer_types") != std::string::npos);
  CHECK(refusal("q_lora_rank", nullptr).find("/q_lora_rank") != std::string::npos);
}

TEST_CASE("a model file with sparse attention is read back as it was written") {
  const ModelSpec model = sparse_model();
  const Result<ModelSpec> again = parse_model(model_to_json(model), "model.json");
  REQUIRE(again.ok());
  CHECK(*again == model);
  CHECK(again->dsa.topk == 2048);
}

TEST_CASE("impossible sparse attention is refused with the field") {
  const auto refused = [](const char* field, auto change) {
    ModelSpec model = sparse_model();
    change(model);
    const Status sound = check_model(model, "model.json");
    REQUIRE_FALSE(sound.ok());
    INFO(sound.error().message());
    CHECK(sound.error().where == "model.json at /" + std::string(field));
  };
  refused("dsa/topk", [](ModelSpec& m) { m.dsa.topk = 0; });
  refused("dsa/index_heads", [](ModelSpec& m) { m.dsa.index_heads = 0; });
  refused("dsa/index_head_dim", [](ModelSpec& m) { m.dsa.index_head_dim = 32; });
  refused("mla/q_lora_rank", [](ModelSpec& m) { m.mla.q_lora_rank = 0; });
  refused("dsa/topk", [](ModelSpec& m) { m.sliding_window = 128, m.windowed_layers = 1; });
  refused("dsa/topk", [](ModelSpec& m) { m.mla = {}, m.head_dim = 128; });
}

TEST_CASE("the own runtime refuses sparse attention by name") {
  CHECK(not_executed(sparse_model()) == "sparse attention whose indexer chooses the keys (DSA)");
}
