// The model a row of a table trained, from its shapes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"
#include "evaluation/framework_defaults.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// Finds models of rows; reads the model catalog when a row first needs it.
class RunModels {
 public:
  /// From the columns; blanks that the defaults of the software fill are reported in `inferred`.
  /// Latent and windowed attention have widths no column gives: those come from the catalog's model
  /// with the same layers, hidden, heads, key-value heads and experts, unless the row has its
  /// whole_model. The error's `found` says why there is no model.
  [[nodiscard]] Result<ModelSpec> model_of(const MeasuredRun& row, const Software& software,
                                           std::vector<std::string>& inferred);

 private:
  /// Without what a row says of prediction modules.
  [[nodiscard]] Result<ModelSpec> layers_of(const MeasuredRun& row, const Software& software,
                                            std::vector<std::string>& inferred);
  [[nodiscard]] const ModelSpec* same_shapes(const MeasuredRun& row);

  std::optional<std::vector<ModelSpec>> catalog_;
};

}  // namespace echelon
