// HuggingFace directories: exported models are imported under every split, by their names and
// shapes, and mismatches are refused.
// Over 400 lines because the same small models of all families pass through every test.
#include "runtime/io/weights/huggingface.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "tests/runtime/training/sharded_state.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

using test::mentions;

namespace fs = std::filesystem;

ModelSpec two_layer_qwen2() {
  ModelSpec model = two_layer_llama();
  model.qkv_bias = true;
  model.tied_embeddings = true;
  return model;
}

ModelSpec two_layer_qwen3() {
  ModelSpec model = two_layer_llama();
  model.qk_norm = true;
  return model;
}

ModelSpec biased_llama() {
  ModelSpec model = two_layer_llama();
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  return model;
}

ModelSpec two_layer_mixtral() {
  ModelSpec model = two_layer_llama();
  model.moe.experts = 3;
  model.moe.experts_per_token = 2;
  model.moe.expert_ffn_hidden = model.ffn_hidden;
  return model;
}

ModelSpec two_layer_qwen3_moe() {
  ModelSpec model = two_layer_qwen3();
  model.moe.experts = 4;
  model.moe.experts_per_token = 2;
  model.moe.expert_ffn_hidden = 8;
  model.moe.first_dense_layers = 1;
  model.moe.every = 2;
  model.moe.router_normalized = false;
  return model;
}

ModelSpec two_layer_qwen2_moe() {
  return like_qwen2_moe(
      two_layer_llama(),
      {.experts = 4, .experts_per_token = 2, .expert_ffn_hidden = 8, .shared_ffn_hidden = 16});
}

/// GLM-4.5-like.
ModelSpec two_layer_glm4_moe() {
  ModelSpec model = two_layer_llama();
  model.head_dim = 4;
  model.qkv_bias = model.qk_norm = true;
  model.moe.experts = 4;
  model.moe.experts_per_token = 2;
  model.moe.expert_ffn_hidden = 8;
  model.moe.shared_ffn_hidden = 16;
  model.moe.first_dense_layers = 1;
  model.moe.every = 2;
  model.moe.router_score = RouterScore::sigmoid;
  model.moe.router_bias = true;
  model.moe.router_scaling = 2.5;
  model.constants->rope.rotated_part = 0.5;
  return model;
}

/// DeepSeek-V3-like, dense; with experts DeepSeek-V2-Lite-like.
ModelSpec tiny_deepseek(bool lite) {
  ModelSpec model = like_deepseek(two_layer_llama(), {.kv_lora_rank = 6,
                                                      .q_lora_rank = lite ? 0 : 5,
                                                      .qk_nope_head_dim = 3,
                                                      .qk_rope_head_dim = 2,
                                                      .v_head_dim = 4});
  if (!lite) return model;
  model.moe.experts = 4;
  model.moe.experts_per_token = 2;
  model.moe.expert_ffn_hidden = 8;
  model.moe.first_dense_layers = 1;
  model.moe.every = 2;  // a single layer: as the reader describes it
  model.moe.router_normalized = false;
  model.moe.router_scaling = 1.5;
  return model;
}

/// DeepSeek-V3-like, with experts.
ModelSpec tiny_deepseek_v3() {
  ModelSpec model = tiny_deepseek(false);
  model.moe = like_deepseek_v3(
      {.experts = 8, .experts_per_token = 3, .expert_ffn_hidden = 8, .shared_ffn_hidden = 16});
  model.moe.every = 2;  // a single layer: as the reader describes it
  return model;
}

Status export_small(const std::string& where, const ModelSpec& model, Element element) {
  return export_huggingface(where, model, element, [&](const Parameter& whole, void* out) {
    fill({&whole, StateKind::weight, 0, whole.count(), out}, element, out);
    return Status(Done{});
  });
}

/// Other constants than the defaults of any family.
ModelSpec with_constants(ModelSpec model, const RotaryEmbedding& rope) {
  model.constants->norm_epsilon = 3e-6;
  if (model.position == PositionEmbedding::rope) model.constants->rope = rope;
  return model;
}

constexpr RotaryEmbedding kTheta{.theta = 500'000};
constexpr RotaryEmbedding kLinear{.theta = 2000, .scaling = RopeScaling::linear, .factor = 4};
constexpr RotaryEmbedding kLlama3{.theta = 500'000,
                                  .scaling = RopeScaling::llama3,
                                  .factor = 8,
                                  .original_positions = 8192,
                                  .low_frequency_factor = 1.5,
                                  .high_frequency_factor = 3};
constexpr RotaryEmbedding kYarn{.theta = 30'000,
                                .scaling = RopeScaling::yarn,
                                .factor = 4,
                                .original_positions = 4096,
                                .beta_fast = 16,
                                .beta_slow = 2,
                                .whole_pairs = false,
                                .attention_factor = 1.25};

std::string import_refusal(const std::string& where, const ModelSpec& model) {
  const auto weights = HuggingFaceWeights::open(where, model);
  return weights.ok() ? "" : weights.error().message();
}

/// Wrong blocks of all ranks of a tensor-parallel split.
int wrong_blocks(const HuggingFaceWeights& weights, const ModelSpec& model, int tp) {
  int wrong = 0;
  for (int rank = 0; rank < tp; ++rank) {
    RankState state = rank_state(model, {Element::f64, std::nullopt, Element::f64}, tp, rank, 1, 0);
    for (const StateSpan& span : state.spans) {
      if (span.kind != StateKind::weight) continue;
      std::vector<double> right(static_cast<std::size_t>(span.parameter->count()));
      std::vector<double> got(right.size(), -1);
      fill(span, Element::f64, right.data());
      const std::int64_t count = span.parameter->count();
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, count / 3}, {count / 3, count}})
        REQUIRE(
            weights.read(*span.parameter, begin, end, &got[std::size_t(begin)], Element::f64).ok());
      wrong += right != got;
    }
  }
  return wrong;
}

/// Rewrites model.safetensors with its tensors and data changed.
void rewrite(const fs::path& where,
             const std::function<void(std::map<std::string, TensorEntry>&)>& change) {
  const std::string path = (where / "model.safetensors").string();
  std::map<std::string, std::vector<float>> data;
  std::map<std::string, TensorEntry> tensors;
  {
    const auto file = SafetensorsFile::open(path);
    REQUIRE(file.ok());
    for (const TensorEntry& tensor : file->header().tensors) {
      tensors[tensor.name] = tensor;
      data[tensor.name].resize(static_cast<std::size_t>(tensor.count()));
      REQUIRE(file->read(tensor, 0, tensor.count(), data[tensor.name].data(), Element::f32).ok());
    }
  }
  change(tensors);
  SafetensorsHeader header;
  for (const auto& [name, tensor] : tensors) {
    header.tensors.push_back(tensor);
    header.tensors.back().name = name;
  }
  std::string text = place_safetensors(header);
  for (const TensorEntry& tensor : header.tensors) {
    std::vector<float> values = data[tensors[tensor.name].name];
    values.resize(static_cast<std::size_t>(tensor.count()));
    text.append(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  }
  std::ofstream(path, std::ios::binary) << text;
}

TEST_CASE("GPT-2's tensors have the names and shapes of transformers, its matrices transposed") {
  const TempDir dir;
  REQUIRE(export_small(dir.path(), two_layer_gpt2(), Element::f32).ok());
  const auto file = SafetensorsFile::open(dir.path() / "model.safetensors");
  REQUIRE(file.ok());
  CHECK(file->header().metadata.at("format") == "pt");
  std::map<std::string, std::string> shapes;
  for (const TensorEntry& tensor : file->header().tensors) {
    shapes[tensor.name] = shape_text(tensor.shape);
  }
  CHECK(shapes.size() == 2 + 2 * 12 + 2);
  CHECK(shapes.at("transformer.wte.weight") == "[13, 8]");
  CHECK(shapes.at("transformer.wpe.weight") == "[16, 8]");
  CHECK(shapes.at("transformer.h.1.ln_1.bias") == "[8]");
  CHECK(shapes.at("transformer.h.1.attn.c_attn.weight") == "[8, 24]");
  CHECK(shapes.at("transformer.h.1.attn.c_attn.bias") == "[24]");
  CHECK(shapes.at("transformer.h.1.attn.c_proj.weight") == "[8, 8]");
  CHECK(shapes.at("transformer.h.0.mlp.c_fc.weight") == "[8, 12]");
  CHECK(shapes.at("transformer.h.0.mlp.c_proj.weight") == "[12, 8]");
  CHECK(shapes.at("transformer.ln_f.weight") == "[8]");
  // Element (input 3, output 8 + 5) of c_attn is element (5, 3) of k.
  double value = 0;
  const TensorEntry& fused = *file->find("transformer.h.1.attn.c_attn.weight");
  REQUIRE(file->read(fused, 3 * 24 + 8 + 5, 1, &value, Element::f64).ok());
  CHECK(value == value_at("layers.1.attention.k.weight", 5 * 8 + 3, StateKind::weight));
}

TEST_CASE("Llama's and Qwen2's tensors have the names of transformers, a tied head is left out") {
  for (const bool tied : {false, true}) {
    const TempDir dir;
    REQUIRE(
        export_small(dir.path(), tied ? two_layer_qwen2() : two_layer_llama(), Element::bf16).ok());
    const auto file = SafetensorsFile::open(dir.path() / "model.safetensors");
    REQUIRE(file.ok());
    for (const char* name :
         {"model.embed_tokens.weight", "model.layers.1.input_layernorm.weight",
          "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.o_proj.weight",
          "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.gate_proj.weight",
          "model.layers.0.mlp.down_proj.weight", "model.norm.weight"}) {
      CHECK(file->find(name) != nullptr);
    }
    CHECK((file->find("lm_head.weight") == nullptr) == tied);
    CHECK((file->find("model.layers.0.self_attn.k_proj.bias") != nullptr) == tied);
    CHECK(shape_text(file->find("model.layers.0.self_attn.k_proj.weight")->shape) == "[4, 8]");
  }
}

TEST_CASE("tensors of experts have the names of the files on the Hub") {
  const auto shapes_of = [](const ModelSpec& model) {
    const TempDir dir;
    REQUIRE(export_small(dir.path(), model, Element::bf16).ok());
    std::map<std::string, std::string> shapes;
    const auto file = SafetensorsFile::open(dir.path() / "model.safetensors");
    for (const TensorEntry& tensor : file.value().header().tensors)
      shapes[tensor.name] = shape_text(tensor.shape);
    return shapes;
  };
  const auto mixtral = shapes_of(two_layer_mixtral());
  CHECK(mixtral.at("model.layers.1.block_sparse_moe.gate.weight") == "[3, 8]");
  CHECK(mixtral.at("model.layers.1.block_sparse_moe.experts.2.w1.weight") == "[12, 8]");
  CHECK(mixtral.at("model.layers.0.block_sparse_moe.experts.0.w2.weight") == "[8, 12]");
  CHECK(mixtral.at("model.layers.0.block_sparse_moe.experts.1.w3.weight") == "[12, 8]");
  const auto qwen3 = shapes_of(two_layer_qwen3_moe());
  CHECK(qwen3.at("model.layers.0.mlp.gate_proj.weight") == "[12, 8]");
  CHECK(qwen3.at("model.layers.1.mlp.gate.weight") == "[4, 8]");
  CHECK(qwen3.at("model.layers.1.mlp.experts.3.gate_proj.weight") == "[8, 8]");
  CHECK(qwen3.at("model.layers.1.mlp.experts.0.down_proj.weight") == "[8, 8]");
  CHECK_FALSE(qwen3.contains("model.layers.1.mlp.gate_proj.weight"));
  const auto qwen2 = shapes_of(two_layer_qwen2_moe());
  CHECK(qwen2.at("model.layers.0.mlp.experts.1.up_proj.weight") == "[8, 8]");
  CHECK(qwen2.at("model.layers.0.mlp.shared_expert.gate_proj.weight") == "[16, 8]");
  CHECK(qwen2.at("model.layers.1.mlp.shared_expert.down_proj.weight") == "[8, 16]");
  CHECK(qwen2.at("model.layers.1.mlp.shared_expert_gate.weight") == "[1, 8]");
  const auto glm = shapes_of(two_layer_glm4_moe());
  CHECK(glm.at("model.layers.0.mlp.up_proj.weight") == "[12, 8]");
  CHECK(glm.at("model.layers.1.mlp.gate.weight") == "[4, 8]");
  CHECK(glm.at("model.layers.1.mlp.gate.e_score_correction_bias") == "[4]");
  CHECK(glm.at("model.layers.1.mlp.experts.3.down_proj.weight") == "[8, 8]");
  CHECK(glm.at("model.layers.1.mlp.shared_experts.up_proj.weight") == "[16, 8]");
}

TEST_CASE("tensors of latent attention have the names of DeepSeek's files") {
  for (const bool lite : {false, true}) {
    const TempDir dir;
    ModelSpec model = tiny_deepseek(lite);
    model.constants->rope = kYarn;
    model.constants->rope.score_mscale = 0.7;
    REQUIRE(export_small(dir.path(), model, Element::f32).ok());
    CHECK(mentions(slurp(dir.path() / "config.json"),
                   lite ? "DeepseekV2ForCausalLM" : "DeepseekV3ForCausalLM"));
    CHECK(import_refusal(dir.path(), model) == "");
    std::map<std::string, std::string> shapes;
    const auto file = SafetensorsFile::open(dir.path() / "model.safetensors");
    for (const TensorEntry& tensor : file.value().header().tensors)
      shapes[tensor.name] = shape_text(tensor.shape);
    const std::string at = "model.layers.1.self_attn.";
    CHECK(shapes.at(at + "kv_a_proj_with_mqa.weight") == "[8, 8]");
    CHECK(shapes.at(at + "kv_a_layernorm.weight") == "[6]");
    CHECK(shapes.at(at + "kv_b_proj.weight") == "[28, 6]");
    CHECK(shapes.at(at + "o_proj.weight") == "[8, 16]");
    if (lite) {
      CHECK(shapes.at(at + "q_proj.weight") == "[20, 8]");
      CHECK(shapes.at("model.layers.1.mlp.experts.3.up_proj.weight") == "[8, 8]");
      continue;
    }
    CHECK(shapes.at(at + "q_a_proj.weight") == "[5, 8]");
    CHECK(shapes.at(at + "q_a_layernorm.weight") == "[5]");
    CHECK(shapes.at(at + "q_b_proj.weight") == "[20, 5]");
  }
  ModelSpec normalized = tiny_deepseek(true);
  normalized.moe.router_normalized = true;
  ModelSpec biased = tiny_deepseek(false);
  biased.attention_output_bias = true;
  for (const ModelSpec& model : {normalized, biased}) {
    const TempDir dir;
    CHECK_FALSE(export_small(dir.path(), model, Element::f32).ok());
  }
}

TEST_CASE("models with experts that no family has are not exported") {
  const TempDir dir;
  ModelSpec wide = two_layer_mixtral();
  wide.ffn_hidden = 16;
  ModelSpec scaled = two_layer_qwen3_moe();
  scaled.moe.router_scaling = 2;
  ModelSpec unscaled = two_layer_mixtral();
  unscaled.moe.router_normalized = false;
  ModelSpec ungated = two_layer_qwen2_moe();
  ungated.moe.shared_expert_gate = false;
  ModelSpec uneven = two_layer_glm4_moe();
  uneven.moe.shared_ffn_hidden = 12;
  ModelSpec softmax = two_layer_glm4_moe();
  softmax.moe.router_score = RouterScore::softmax;
  softmax.moe.router_bias = false;
  ModelSpec partial = two_layer_llama();
  partial.constants->rope.rotated_part = 0.5;
  partial.head_dim = 4;
  for (const ModelSpec& model : {wide, scaled, unscaled, ungated, uneven, softmax, partial}) {
    const Status done = export_small(dir.path(), model, Element::f32);
    REQUIRE_FALSE(done.ok());
    CHECK(mentions(done.error().message(), "no HuggingFace family"));
  }
}

TEST_CASE("an exported model is imported unchanged, under every split") {
  for (const ModelSpec& plain :
       {two_layer_gpt2(), two_layer_llama(), two_layer_qwen2(), two_layer_qwen3(), biased_llama(),
        two_layer_mixtral(), two_layer_qwen3_moe(), two_layer_qwen2_moe(), two_layer_glm4_moe(),
        tiny_deepseek(false), tiny_deepseek(true), tiny_deepseek_v3()}) {
    RotaryEmbedding rope = kTheta;
    if (plain.constants) rope.rotated_part = plain.constants->rope.rotated_part;
    const ModelSpec model = with_constants(plain, rope);
    const TempDir dir;
    REQUIRE(export_small(dir.path(), model, Element::f64).ok());
    const auto weights = HuggingFaceWeights::open(dir.path(), model);
    INFO((weights ? "" : weights.error().message()));
    REQUIRE(weights.ok());
    for (const int tp : {1, 2, 4}) CHECK(wrong_blocks(*weights, model, tp) == 0);
  }
}

TEST_CASE("epsilon, theta and scaling of the config are exported and compared on import") {
  for (const RotaryEmbedding& rope : {kTheta, kLinear, kLlama3, kYarn}) {
    const TempDir dir;
    const ModelSpec model = with_constants(two_layer_llama(), rope);
    REQUIRE(export_small(dir.path(), model, Element::f32).ok());
    const auto config = parse_huggingface_config(slurp(dir.path() / "config.json"), "config.json");
    INFO((config ? "" : config.error().message()));
    REQUIRE(config.ok());
    CHECK(config->model.constants == model.constants);
    CHECK(import_refusal(dir.path(), model) == "");
    ModelSpec other = model;
    other.constants->rope = {};
    CHECK(mentions(import_refusal(dir.path(), other), "rope is {\"theta\":"));
    other = model;
    other.constants->norm_epsilon = 1e-5;
    CHECK(
        mentions(import_refusal(dir.path(), other), "norm_epsilon is 3e-06, the plan's is 1e-05"));
  }
  const TempDir dir;
  const ModelSpec gpt = with_constants(two_layer_gpt2(), {});
  REQUIRE(export_small(dir.path(), gpt, Element::f32).ok());
  CHECK(mentions(slurp(dir.path() / "config.json"), "\"layer_norm_epsilon\": 3e-06"));
  CHECK(mentions(import_refusal(dir.path(), two_layer_gpt2()),
                 "norm_epsilon is 3e-06, the plan's is 1e-05"));
}

TEST_CASE("norms of query and key heads are exported as Qwen3's") {
  const TempDir dir;
  REQUIRE(export_small(dir.path(), two_layer_qwen3(), Element::f32).ok());
  CHECK(mentions(slurp(dir.path() / "config.json"), "Qwen3ForCausalLM"));
  const auto file = SafetensorsFile::open(dir.path() / "model.safetensors");
  REQUIRE(file.ok());
  for (const char* name :
       {"model.layers.0.self_attn.q_norm.weight", "model.layers.1.self_attn.k_norm.weight"}) {
    REQUIRE(file->find(name) != nullptr);
    CHECK(shape_text(file->find(name)->shape) == "[2]");
  }
  ModelSpec biased = two_layer_qwen3();
  biased.mlp_bias = true;
  const Status refused = export_small(dir.path(), biased, Element::f32);
  REQUIRE_FALSE(refused.ok());
  CHECK(mentions(refused.error().message(), "no HuggingFace family has this model's shapes"));
}

TEST_CASE("a Mistral model is exported as Mistral") {
  const TempDir dir;
  ModelSpec model = two_layer_llama();
  model.architecture = "mistral";
  REQUIRE(export_small(dir.path(), model, Element::f32).ok());
  const std::string config = slurp(dir.path() / "config.json");
  CHECK(mentions(config, "MistralForCausalLM"));
  CHECK(mentions(config, "\"sliding_window\": null"));
  CHECK(import_refusal(dir.path(), model) == "");
}

TEST_CASE("windows that are longer than the sequence are exported and imported again") {
  ModelSpec mistral = two_layer_llama();
  mistral.sliding_window = 64;
  mistral.windowed_layers = mistral.layers;
  ModelSpec qwen2 = two_layer_qwen2();
  ModelSpec qwen3 = two_layer_qwen3();
  qwen2.sliding_window = qwen3.sliding_window = 64;
  qwen2.windowed_layers = qwen3.windowed_layers = 1;  // the last one
  for (const ModelSpec& model : {mistral, qwen2, qwen3}) {
    const TempDir dir;
    REQUIRE(export_small(dir.path(), model, Element::f32).ok());
    CHECK(mentions(slurp(dir.path() / "config.json"), "\"sliding_window\": 64"));
    CHECK(import_refusal(dir.path(), model) == "");
    ModelSpec other = model;
    other.sliding_window = 32;
    CHECK(mentions(import_refusal(dir.path(), other), "sliding_window is 64"));
  }
  mistral.windowed_layers = 1;
  const TempDir dir;
  CHECK_FALSE(export_small(dir.path(), mistral, Element::f32).ok());
}

TEST_CASE("a checkpoint is exported with its weights") {
  const TempDir dir;
  const StateFormat format{Element::f64, std::nullopt, Element::f64};
  RankState rank = rank_state(two_layer_gpt2(), format, 1, 0, 1, 0);
  fill(rank, format);
  REQUIRE(write_checkpoint(dir.path() / "run", contents_of(two_layer_gpt2(), format, 1), rank.spans,
                           {}, {})
              .ok());
  REQUIRE(export_checkpoint(dir.path() / "run/step_1", dir.path() / "out").ok());
  const auto weights = HuggingFaceWeights::open(dir.path() / "out", two_layer_gpt2());
  REQUIRE(weights.ok());
  CHECK(wrong_blocks(*weights, two_layer_gpt2(), 2) == 0);
  // And again, over the existing files.
  CHECK(export_checkpoint(dir.path() / "run/step_1", dir.path() / "out").ok());
  CHECK_FALSE(fs::exists(dir.path() / "out/model.safetensors.tmp"));
}

TEST_CASE("another model than the plan's is refused by its first difference") {
  const TempDir dir;
  REQUIRE(export_small(dir.path(), two_layer_llama(), Element::f32).ok());
  ModelSpec planned = two_layer_llama();
  planned.layers = 3;
  CHECK(mentions(import_refusal(dir.path(), planned), "layers is 2, the plan's is 3"));
  planned = two_layer_llama();
  planned.max_positions = 4096;  // RoPE has no table
  CHECK(import_refusal(dir.path(), planned) == "");
  planned.tied_embeddings = true;
  CHECK(mentions(import_refusal(dir.path(), planned), "tied_embeddings is false"));
}

TEST_CASE("missing tensors, wrong shapes and unexpected tensors are refused by name") {
  const TempDir dir;
  const auto after = [&](const std::function<void(std::map<std::string, TensorEntry>&)>& change) {
    REQUIRE(export_small(dir.path(), two_layer_qwen2(), Element::f32).ok());
    rewrite(dir.path(), change);
    return import_refusal(dir.path(), two_layer_qwen2());
  };
  const std::string norm = "model.layers.1.input_layernorm.weight";
  CHECK(after([](auto&) {}) == "");
  CHECK(mentions(after([&](auto& tensors) { tensors.erase(norm); }),
                 "the tensor " + norm + " is missing"));
  CHECK(mentions(after([&](auto& tensors) {
                   tensors[norm].shape = {4, 2};
                 }),
                 norm + " is [4, 2]; expected [8]"));
  CHECK(mentions(after([&](auto& tensors) { tensors["model.layers.2.x"] = tensors[norm]; }),
                 "unexpected tensor model.layers.2.x: the model has no such parameter"));
  CHECK(mentions(after([&](auto& tensors) { tensors["lm_head.weight"] = tensors[norm]; }),
                 "lm_head.weight is not the word embedding"));
  CHECK(after([](auto& tensors) {
          tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
        }) == "");
  CHECK(after([&](auto& tensors) {
          tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = tensors[norm];
        }) == "");
  const fs::path file = dir.path() / "model.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  CHECK(mentions(import_refusal(dir.path(), two_layer_qwen2()), "cut off or damaged"));
}

TEST_CASE("tensors of modules that predict further tokens are passed over") {
  const TempDir dir;
  REQUIRE(export_small(dir.path(), two_layer_glm4_moe(), Element::f32).ok());
  rewrite(dir.path(), [](auto& tensors) {
    tensors["model.layers.2.eh_proj.weight"] = tensors["model.norm.weight"];
  });
  CHECK(mentions(import_refusal(dir.path(), two_layer_glm4_moe()),
                 "unexpected tensor model.layers.2.eh_proj.weight"));
  const std::string path = (dir.path() / "config.json").string();
  std::string config = slurp(path);
  const std::string none = "\"num_nextn_predict_layers\": 0";
  REQUIRE(config.find(none) != std::string::npos);
  config.replace(config.find(none), none.size(), "\"num_nextn_predict_layers\": 1");
  std::ofstream(path) << config;
  CHECK(import_refusal(dir.path(), two_layer_glm4_moe()) == "");
}

TEST_CASE("names without the prefix are read, as openai's gpt2 has them") {
  const TempDir dir;
  REQUIRE(export_small(dir.path(), two_layer_gpt2(), Element::f32).ok());
  rewrite(dir.path(), [](auto& tensors) {
    std::map<std::string, TensorEntry> bare;
    for (const auto& [name, tensor] : tensors) bare[name.substr(12)] = tensor;
    tensors = bare;
  });
  const auto weights = HuggingFaceWeights::open(dir.path(), two_layer_gpt2());
  REQUIRE(weights.ok());
  CHECK(wrong_blocks(*weights, two_layer_gpt2(), 2) == 0);
}

TEST_CASE("unsupported arithmetic is refused in config.json, like a plan of it") {
  HuggingFaceNames names{};
  const auto changed = [&](const ModelSpec& model, const std::string& before,
                           const std::string& after) {
    std::string text = *huggingface_config(model, Element::f32, names);
    REQUIRE(text.find(before) != std::string::npos);
    text.replace(text.find(before), before.size(), after);
    const auto config = parse_huggingface_config(text, "config.json");
    const std::string refusal = config.ok() ? "" : config.error().message();
    const auto planned = parse_model(text, "config.json");
    REQUIRE(planned.ok());
    // The reason of both checks; families whose tensors have other names have their own reason.
    const auto why = not_executed(*planned, 1);
    CHECK((refusal.find("'gemma' is not executed") != std::string::npos ||
           refusal.find("as transformers rotates those of llama") != std::string::npos ||
           (why ? refusal.find(why->found) != std::string::npos : refusal.empty())));
    return refusal;
  };
  const std::string theta = "\"rope_theta\": 10000.0";
  const auto scaled = [&](const std::string& object) {
    return changed(two_layer_llama(), theta, "\"rope_scaling\": " + object);
  };
  CHECK(changed(two_layer_llama(), theta, theta) == "");
  CHECK(scaled(R"({"type": "default"})") == "");
  CHECK(scaled(R"({"type": "linear", "factor": 2.0})") == "");
  CHECK(mentions(scaled(R"({"type": "dynamic", "factor": 2.0})"), "'dynamic' scaling"));
  CHECK(mentions(scaled(R"({"type": "longrope", "short_factor": [1], "long_factor": [1]})"),
                 "'longrope' scaling"));
  CHECK(mentions(scaled(R"({"type": "mrope", "mrope_section": [16, 24]})"), "'mrope' scaling"));
  CHECK(mentions(scaled(R"({"type": "linear", "factor": 2.0, "fudge": 3})"), "key 'fudge'"));
  ModelSpec wide = two_layer_llama();
  wide.head_dim = 4;
  CHECK(mentions(changed(wide, theta, R"("partial_rotary_factor": 0.5)"),
                 "partial rotary embedding (0.5 of each head)"));
  for (const char* key : {"embedding_multiplier", "logits_scaling", "attention_multiplier",
                          "final_logit_softcapping", "clip_qkv", "logit_scale"}) {
    CHECK(mentions(changed(two_layer_llama(), theta, "\"" + std::string(key) + "\": 12.0"),
                   "key '" + std::string(key) + "'"));
    CHECK(changed(two_layer_llama(), theta, "\"" + std::string(key) + "\": null") == "");
  }
  CHECK(mentions(changed(two_layer_llama(), "\"llama\"", "\"gemma\""), "'gemma' is not executed"));
  CHECK(mentions(changed(two_layer_gpt2(), "\"gelu_new\"", "\"gelu\""), "the tanh form"));
  const std::string positions = "\"n_positions\": 16";
  CHECK(
      mentions(changed(two_layer_gpt2(), positions, positions + ", \"scale_attn_weights\": false"),
               "scores that are not scaled"));
  CHECK(mentions(changed(two_layer_gpt2(), positions,
                         positions + ", \"scale_attn_by_inverse_layer_idx\": true"),
                 "scaled by layer"));
}

TEST_CASE("a model that no HuggingFace family describes is not exported") {
  const TempDir dir;
  ModelSpec model = two_layer_llama();
  model.normalization = Normalization::layer_norm;
  const Status written = export_small(dir.path(), model, Element::f32);
  REQUIRE_FALSE(written.ok());
  CHECK(mentions(written.error().message(), "no HuggingFace family has this model's shapes"));
}

}  // namespace
}  // namespace echelon
