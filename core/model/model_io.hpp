// Reads models: the catalog, HuggingFace config.json files, our own model files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"

namespace echelon {

/// Catalog name (or alias, such as 7b) or a path to a HuggingFace config.json, one of our model
/// files or a plan file, for its model. Errors: unknown name (nearest offered), unreadable file,
/// unknown architecture (nearest known offered), missing or ill-typed key (JSON pointer given),
/// shapes that contradict each other.
[[nodiscard]] Result<ModelSpec> load_model(std::string_view name_or_path);

/// The same from text already in memory; `where` names it in errors.
[[nodiscard]] Result<ModelSpec> parse_model(std::string_view json, std::string_view where);

/// Our own model file: every field of the ModelSpec, read back identically by parse_model.
[[nodiscard]] std::string model_to_json(const ModelSpec& model);

struct CatalogModel {
  std::string name;
  std::vector<std::string> aliases;
};
[[nodiscard]] std::vector<CatalogModel> model_catalog();

/// Shapes that make sense together: positive, heads a multiple of kv_heads, experts enough for
/// every token, latent widths that add up, no overflow.
[[nodiscard]] Status check_model(const ModelSpec& model, std::string_view where);

}  // namespace echelon
