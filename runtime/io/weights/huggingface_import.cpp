#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "core/base/files.hpp"
#include "runtime/io/weights/huggingface.hpp"
#include "runtime/io/weights/manifest.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kLongestConfig = std::int64_t{1} << 20;

/// Tables that files contain although they follow from the shapes: GPT-2's causal masks and
/// Llama's rotary frequencies, as early versions of transformers wrote them.
bool follows_from_shapes(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

/// Whether a tensor is of a module that predicts further tokens: of a layer behind the last one.
/// Source: transformers, _keys_to_ignore_on_load_unexpected of Glm4MoeModel and DeepseekV3Model.
bool of_prediction_module(std::string_view name, std::string_view prefix,
                          const HuggingFaceConfig& config) {
  for (int module = 0; module < config.prediction_modules; ++module) {
    const int layer = config.model.layers + module;
    if (name.starts_with(fmt::format("{}layers.{}.", prefix, layer))) return true;
  }
  return false;
}

}  // namespace

Result<HuggingFaceWeights> HuggingFaceWeights::open(const std::string& directory,
                                                    const ModelSpec& planned) {
  const std::string path = (std::filesystem::path(directory) / "config.json").string();
  const Result<std::string> text = read_file(path, kLongestConfig);
  if (!text) return text.error();
  Result<HuggingFaceConfig> config = parse_huggingface_config(*text, path);
  if (!config) return config.error();
  const std::string difference = first_difference(config->model, planned);
  if (!difference.empty()) {
    return input_error(path, "another model than the plan's: " + difference,
                       fmt::format("a model with the shapes and constants of {}", planned.name),
                       "plan --model " + directory + " -o FILE writes a plan of this one");
  }
  Result<TensorFiles> files = TensorFiles::open(directory);
  if (!files) return files.error();
  HuggingFaceWeights weights(std::move(*config), std::move(*files));
  const Status checked = weights.check_tensors();
  if (!checked) return checked.error();
  return weights;
}

std::string HuggingFaceWeights::full_name(const ForeignPlace& place) const {
  return (place.inside ? prefix_ : "") + place.name;
}

Status HuggingFaceWeights::check_tensors() {
  // Some files contain the model without its head, and names without the prefix (openai's gpt2).
  const bool gpt2 = config_.names == HuggingFaceNames::gpt2;
  const std::string bare = gpt2 ? "wte.weight" : "embed_tokens.weight";
  if (!files_.tensors().contains(bare)) prefix_ = gpt2 ? "transformer." : "model.";
  // The shapes are those of config.json, which are the plan's; dropout is not compared.
  ModelSpec model = config_.model;
  model.hidden_dropout = model.attention_dropout = 0;
  std::set<std::string> known;
  for (const Parameter& parameter : whole_parameters(model)) {
    const ForeignPlace place = foreign_place(config_.names, parameter);
    const std::string name = full_name(place);
    known.insert(name);
    const auto found = files_.tensors().find(name);
    if (found == files_.tensors().end()) {
      return input_error(files_.where(), fmt::format("the tensor {} is missing", name),
                         "every tensor of the model");
    }
    const TensorEntry& tensor = *found->second.tensor;
    if (tensor.shape != place.shape) {
      return input_error(found->second.file->path(),
                         fmt::format("{} is {}", name, shape_text(tensor.shape)),
                         shape_text(place.shape));
    }
  }
  for (const auto& [name, found] : files_.tensors()) {
    if (known.contains(name)) continue;
    const Status fine = check_extra(name);
    if (!fine) return fine;
  }
  return Done{};
}

Status HuggingFaceWeights::check_extra(const std::string& name) const {
  if (name == "lm_head.weight" && config_.model.tied_embeddings) return check_tied_head();
  if (follows_from_shapes(name) || of_prediction_module(name, prefix_, config_)) return Done{};
  return input_error(
      files_.tensors().at(name).file->path(),
      fmt::format("unexpected tensor {}: the model has no such parameter", name.substr(0, 100)),
      "only tensors of the model", "config.json may be of another model");
}

/// If both are stored, the head must equal the embedding.
Status HuggingFaceWeights::check_tied_head() const {
  const TensorFiles::Found head = files_.tensors().at("lm_head.weight");
  const TensorFiles::Found word = files_.tensors().at(
      prefix_ + (config_.names == HuggingFaceNames::gpt2 ? "wte.weight" : "embed_tokens.weight"));
  bool same = head.tensor->shape == word.tensor->shape;
  constexpr std::int64_t kBlock = 1 << 16;
  std::vector<float> one(kBlock);
  std::vector<float> other(kBlock);
  for (std::int64_t at = 0; same && at < head.tensor->count(); at += kBlock) {
    const std::int64_t count = std::min(kBlock, head.tensor->count() - at);
    const auto get = [&](const TensorFiles::Found& from, std::vector<float>& to) {
      return from.file->read(*from.tensor, at, count, to.data(), Element::f32);
    };
    for (const Status& read : {get(head, one), get(word, other)}) {
      if (!read) return read;
    }
    same = std::memcmp(one.data(), other.data(), sizeof(float) * std::size_t(count)) == 0;
  }
  if (same) return Done{};
  return input_error(head.file->path(), "lm_head.weight is not the word embedding",
                     "equal ones: config.json says that they are tied");
}

Status HuggingFaceWeights::read(const Parameter& parameter, std::int64_t begin, std::int64_t end,
                                void* out, Element element) const {
  const ForeignPlace place = foreign_place(config_.names, parameter);
  const auto found = files_.tensors().find(full_name(place));
  EXPECTS(found != files_.tensors().end(), "a parameter of the model: " + parameter.name);
  EXPECTS(begin >= 0 && begin <= end && end <= parameter.count(), "a range of the block");
  const SafetensorsFile& file = *found->second.file;
  const TensorEntry& tensor = *found->second.tensor;
  const std::int64_t size = bytes_of(element);
  auto* to = static_cast<char*>(out);
  if (begin == end) return Done{};
  std::memset(out, 0, static_cast<std::size_t>((end - begin) * size));
  if (!place.transposed) {
    Status fine = Done{};
    for_each_piece(parameter, begin, end,
                   [&](std::int64_t global, std::int64_t local, std::int64_t count) {
                     if (!fine) return;
                     fine = file.read(tensor, place.first * parameter.columns + global, count,
                                      to + (local - begin) * size, element);
                   });
    return fine;
  }
  // A row of theirs is a column of ours: of each, the part in the rows of ours that the range has.
  const std::int64_t width = place.shape[1];
  const std::int64_t columns = parameter.local_columns;
  for (std::int64_t column = 0; column < columns; ++column) {
    const std::int64_t top = (begin - column + columns - 1) / columns;
    const std::int64_t bottom = (end - column + columns - 1) / columns;
    if (top == bottom) continue;
    std::vector<char> row(static_cast<std::size_t>((bottom - top) * size));
    const std::int64_t first = (parameter.first_column + column) * width + place.first;
    const Status read =
        file.read(tensor, first + parameter.first_row + top, bottom - top, row.data(), element);
    if (!read) return read;
    for (std::int64_t i = top; i < bottom; ++i) {
      std::memcpy(to + (i * columns + column - begin) * size, row.data() + (i - top) * size,
                  static_cast<std::size_t>(size));
    }
  }
  return Done{};
}

}  // namespace echelon
