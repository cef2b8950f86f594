// The model a row of a table trained, from its shapes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"
#include "planner/run_habits.hpp"
#include "planner/runs_io.hpp"

namespace echelon {

/// Finds models of rows; reads the model catalog when a row first needs it.
class RunModels {
 public:
  /// From the columns; blanks that the habits of the software fill are told in `inferred`. Latent
  /// and windowed attention have widths no column gives: those come from the catalog's model with
  /// the same layers, hidden, heads, key-value heads and experts. The error's `found` says why
  /// there is no model.
  [[nodiscard]] Result<ModelSpec> model_of(const RunRow& row, const RunHabits& habits,
                                           std::vector<std::string>& inferred);

 private:
  [[nodiscard]] const ModelSpec* same_shapes(const RunRow& row);

  std::optional<std::vector<ModelSpec>> catalog_;
};

}  // namespace echelon
