// Where a model's parameters are: the groups by which parallelism splits them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"

namespace echelon {

/// The parameters of all layers together, by group.
[[nodiscard]] ModelSpec::LayerParameters parameters_of_layers(const ModelSpec& model);

/// One group of all parameters of a model.
struct ParameterGroup {
  std::string_view name;
  std::int64_t count = 0;
  std::int64_t active = 0;  ///< without the experts that a token does not visit
};
/// Embedding, groups of the layers, head: those that the model has. Their sums are parameters() and
/// active_parameters().
[[nodiscard]] std::vector<ParameterGroup> parameter_groups(const ModelSpec& model);

}  // namespace echelon
