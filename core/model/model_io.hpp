// Reads models: the catalog, HuggingFace config.json files, Echelon's own model files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"

namespace echelon {

/// Loads a model by catalog name (or alias, such as 7b) or from a HuggingFace config.json, an
/// Echelon model file or a plan file. Errors: unknown name (with the nearest), unreadable file,
/// unknown architecture (with the nearest), missing or ill-typed key (with its JSON pointer),
/// contradictory shapes.
[[nodiscard]] Result<ModelSpec> load_model(std::string_view name_or_path);

/// A model, and what its file has beyond it, in words for the reader of an answer.
struct ModelReading {
  ModelSpec model;
  std::vector<std::string> remarks;
};
[[nodiscard]] Result<ModelReading> read_model(std::string_view name_or_path);

/// load_model for a text in memory; `where` names it in errors.
[[nodiscard]] Result<ModelSpec> parse_model(std::string_view json, std::string_view where);

/// Text of a model file: every field of the ModelSpec; parse_model reads the same ModelSpec back.
[[nodiscard]] std::string model_to_json(const ModelSpec& model);

struct CatalogModel {
  std::string name;
  std::vector<std::string> aliases;
};
[[nodiscard]] std::vector<CatalogModel> model_catalog();

/// Checks that the shapes are consistent: positive, heads a multiple of kv_heads, at least as many
/// experts as each token visits, latent widths that add up, no overflow.
[[nodiscard]] Status check_model(const ModelSpec& model, std::string_view where);

}  // namespace echelon
