// What is known of a run, by column of a table of runs, and where each value is from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

enum class FactOrigin {
  given,    ///< by the user
  found,    ///< in the log
  derived,  ///< from other facts
};

struct RunFact {
  std::string column;  ///< or a name of kExtraValues
  std::string value;
  FactOrigin origin = FactOrigin::found;
  std::string from;  ///< "--tp", "line 12: seq-length", "TFLOP/s of line 30"
};

class RunFacts {
 public:
  /// The first value of a column stays. Another value of a column that decides the size of the work
  /// is kept as a contradiction.
  void set(std::string_view column, std::string value, FactOrigin origin, std::string from);
  /// Whole numbers without a point.
  void set(std::string_view column, double value, FactOrigin origin, std::string from);
  /// All shapes of a model, and the model itself where no column says what its layers are.
  void set_model(const ModelSpec& model, FactOrigin origin, const std::string& from);
  /// The first of these models.
  [[nodiscard]] const std::optional<ModelSpec>& whole_model() const { return whole_model_; }

  [[nodiscard]] const RunFact* find(std::string_view column) const;
  [[nodiscard]] bool has(std::string_view column) const { return find(column) != nullptr; }
  /// Nothing if it is unknown or no number.
  [[nodiscard]] std::optional<double> number(std::string_view column) const;
  [[nodiscard]] const std::vector<RunFact>& all() const { return facts_; }
  /// "global_batch is 1008 (line 9: ...) and 512 (line 30: ...)"
  [[nodiscard]] const std::vector<std::string>& contradictions() const { return contradictions_; }
  void contradict(std::string sentence) { contradictions_.push_back(std::move(sentence)); }

 private:
  std::vector<RunFact> facts_;
  std::optional<ModelSpec> whole_model_;
  std::vector<std::string> contradictions_;
};

/// What no column of a table of runs says of a model: layers without attention, of one part or with
/// windows, latents. "24 Mamba-2, 24 MLP, 4 attention layers"; "" for any other model.
[[nodiscard]] std::string beyond_columns(const ModelSpec& model);

/// The row of all facts that are columns. Error: a value that its column cannot hold, at
/// "PATH, line N".
[[nodiscard]] Result<MeasuredRun> row_of(const RunFacts& facts, const std::string& path);

}  // namespace echelon
