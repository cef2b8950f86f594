#include "evaluation/run_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/base/text.hpp"
#include "core/model/model_io.hpp"
#include "evaluation/run_wording.hpp"

namespace echelon {

namespace {

constexpr std::int64_t kMostLayers = 100'000;

int count_or(const WholeCell& cell, int otherwise) {
  return cell ? static_cast<int>(*cell) : otherwise;
}

Error no_model(std::string why) { return input_error("row", std::move(why), "a model to price"); }

/// GPT or Llama: kind of MLP, norms, positions, biases and dropout.
void set_architecture(const MeasuredRun& row, const FrameworkDefaults& defaults, ModelSpec& model,
                      std::vector<std::string>& inferred) {
  const bool gated = row.gated_mlp.value_or(true);
  if (!row.gated_mlp) inferred.push_back("a gated MLP");
  if (!row.tied_embeddings) inferred.push_back(gated ? "an untied head" : "a tied head");
  model.gated_mlp = gated;
  model.tied_embeddings = row.tied_embeddings.value_or(!gated);
  model.activation = gated ? Activation::silu : Activation::gelu;
  model.normalization = gated ? Normalization::rms_norm : Normalization::layer_norm;
  const bool alibi = row.attention_detail.find("ALiBi") != std::string::npos;
  model.position = gated   ? PositionEmbedding::rope
                   : alibi ? PositionEmbedding::alibi
                           : PositionEmbedding::learned;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = !gated;
  model.hidden_dropout = model.attention_dropout = gated ? 0 : defaults.dropout;
}

Result<ModelSpec> model_by_shapes(const MeasuredRun& row, const Software& software,
                                  std::vector<std::string>& inferred) {
  std::string missing;
  const auto need = [&](const WholeCell& cell, std::string_view name) {
    if (!cell) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
    return count_or(cell, 0);
  };
  const int default_vocab = software.framework->default_vocab;
  ModelSpec model;
  model.name = row.model.empty() ? "the model of " + row.row_id : row.model;
  model.architecture = "table row";
  model.source = row.source;
  model.layers = need(row.layers, "layers");
  model.hidden = need(row.hidden, "hidden");
  model.heads = need(row.heads, "heads");
  const bool gpt = row.gated_mlp && !*row.gated_mlp;
  const bool mixture = count_or(row.experts, 1) > 1;
  if (mixture) {
    model.moe.experts = count_or(row.experts, 0);
    model.moe.experts_per_token = need(row.experts_per_token, "experts_per_token");
    model.moe.expert_ffn_hidden = need(row.expert_ffn_hidden, "expert_ffn_hidden");
    model.moe.shared_ffn_hidden = count_or(row.shared_expert_ffn_hidden, 0);
    model.moe.first_dense_layers = count_or(row.first_dense_layers, 0);
  }
  if (mixture && !row.ffn_hidden && model.moe.first_dense_layers == 0) {
    model.ffn_hidden = std::max(1, model.moe.expert_ffn_hidden);  // no layer uses it
  } else if (!row.ffn_hidden && gpt && row.hidden) {
    model.ffn_hidden = 4 * model.hidden;
    inferred.push_back("an MLP of 4 x hidden");
  } else {
    model.ffn_hidden = need(row.ffn_hidden, "ffn_hidden");
  }
  if (!row.vocab && default_vocab > 0) {
    model.vocab = default_vocab;
    inferred.push_back(fmt::format("a vocabulary of {}", default_vocab));
  } else {
    model.vocab = need(row.vocab, "vocab");
  }
  model.max_positions = need(row.seq, "seq");
  if (!missing.empty()) return no_model("the source does not say: " + missing);

  if (!row.kv_heads && row.attention != "mha") inferred.push_back("kv_heads = heads");
  model.kv_heads = count_or(row.kv_heads, model.heads);
  if (!row.head_dim && model.hidden % model.heads != 0) {
    return no_model(fmt::format("{} heads do not divide hidden {} and head_dim is blank",
                                model.heads, model.hidden));
  }
  model.head_dim = count_or(row.head_dim, model.hidden / model.heads);
  set_architecture(row, *software.defaults, model, inferred);
  const Status sound = check_model(model, "row");
  if (model.layers > kMostLayers) return no_model("more than 100,000 layers");
  if (!sound) return no_model("shapes that contradict each other: " + sound.error().found);
  return model;
}

}  // namespace

const ModelSpec* RunModels::same_shapes(const MeasuredRun& row) {
  if (!catalog_) {
    catalog_.emplace();
    for (const CatalogModel& one : model_catalog()) {
      Result<ModelSpec> model = load_model(one.name);
      if (model) catalog_->push_back(*std::move(model));
    }
  }
  // A source that gives no shapes gives the model's name, often without the active parameters.
  const std::string name = lower_case(row.model);
  const bool named = !row.layers && !row.hidden && !name.empty();
  const auto found = std::ranges::find_if(*catalog_, [&](const ModelSpec& model) {
    const MixtureOfExperts& moe = model.moe;
    const bool mixed = model.windowed_layers > 0 || model.delta.layers > 0 ||
                       model.ssm.layers > 0 || model.conv.layers > 0;
    if (named) return mixed && (model.name == name || model.name.starts_with(name + "-a"));
    const bool latent = model.latent() && !model.sparse();  // of DeepSeek-V3, not of V3.2
    return (row.attention == "mla" ? latent : mixed) && count_or(row.layers, 0) == model.layers &&
           count_or(row.hidden, 0) == model.hidden && count_or(row.heads, 0) == model.heads &&
           count_or(row.kv_heads, model.kv_heads) == model.kv_heads &&
           count_or(row.experts, 0) == moe.experts &&
           count_or(row.experts_per_token, 0) == moe.experts_per_token &&
           count_or(row.expert_ffn_hidden, 0) == moe.expert_ffn_hidden;
  });
  return found == catalog_->end() ? nullptr : &*found;
}

Result<ModelSpec> RunModels::model_of(const MeasuredRun& row, const Software& software,
                                      std::vector<std::string>& inferred) {
  Result<ModelSpec> model = layers_of(row, software, inferred);
  if (model && states(row.notes, {"mtp layer", "mtp layers", "w mtp"}))
    model->prediction_modules = 1;
  return model;
}

Result<ModelSpec> RunModels::layers_of(const MeasuredRun& row, const Software& software,
                                       std::vector<std::string>& inferred) {
  if (row.whole_model) {
    ModelSpec model = *row.whole_model;
    model.vocab = count_or(row.vocab, model.vocab);
    model.max_positions = count_or(row.seq, model.max_positions);
    return model;
  }
  if (row.attention != "mla" && row.attention != "other") {
    return model_by_shapes(row, software, inferred);
  }
  const ModelSpec* known = same_shapes(row);
  if (known == nullptr && row.attention == "mla") {
    return no_model("the table does not give the widths of latent attention");
  }
  if (known == nullptr) {
    return no_model(fmt::format("attention {} is not priced", in_quotes(row.attention_detail)));
  }
  ModelSpec model = *known;
  model.vocab = count_or(row.vocab, model.vocab);
  model.max_positions = count_or(row.seq, model.max_positions);
  inferred.push_back(row.layers ? fmt::format("attention of the catalog's {}, which has the same "
                                              "shapes",
                                              model.name)
                                : fmt::format("the shapes of the catalog's {}", model.name));
  return model;
}

}  // namespace echelon
