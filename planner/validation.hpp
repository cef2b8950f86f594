// Validation: every row of a table of measured runs predicted, and the errors summed up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/calibration.hpp"
#include "core/cost.hpp"
#include "core/result.hpp"
#include "core/units.hpp"
#include "planner/runs_io.hpp"

namespace echelon {

/// One row beside its prediction. Errors are predicted / measured − 1.
struct ValidatedRow {
  std::string row_id, source, group;
  std::optional<Seconds> predicted_step, measured_step;
  Seconds low, high;        ///< 80 % band of predicted_step
  CostBreakdown parts;      ///< of predicted_step
  std::string calibration;  ///< name of the one used; "" without a prediction
  std::optional<double> time_error;
  std::optional<Bytes> predicted_peak, measured_peak;  ///< both as the row's memory_kind counts
  std::optional<double> memory_error;
  std::optional<bool> predicted_fits, measured_fits;
  std::string skipped;        ///< why there is no prediction; "" when there is one
  bool inferred = false;      ///< a blank that mattered was filled by the stack's habit
  std::string inferred_what;  ///< … which, "; " between them
};

/// Of signed errors e: mean |e|, median |e|, 90th percentile of |e|, and the bias, mean e.
/// Quantiles interpolate linearly between order statistics. All zero without rows.
struct ErrorSummary {
  int rows = 0;
  double mean_abs = 0;
  double median_abs = 0;
  double p90_abs = 0;
  double bias = 0;
};
[[nodiscard]] ErrorSummary summarize(std::vector<double> errors);

/// Rows of one `group` are the same job under different plans: does the order come out right?
struct Ranking {
  std::string group;
  int rows = 0;
  double regret = 0;    ///< measured time of our first choice / best measured − 1
  double regret3 = 0;   ///< … of the best measured among our first three choices
  double spearman = 0;  ///< rank correlation, ties averaged; 0 when either side is constant
};
/// `predicted` and `measured` step times of one group's rows, in the same order; not empty.
[[nodiscard]] Ranking rank_group(std::string group, const std::vector<double>& predicted,
                                 const std::vector<double>& measured);

struct FitsSummary {
  int rows = 0;        ///< predicted rows known to have run or to have ended out of memory
  int false_fits = 0;  ///< predicted to fit, ended out of memory
  int false_ooms = 0;  ///< predicted not to fit, ran
};

struct ValidationSummary {
  ErrorSummary time;
  ErrorSummary memory;
  FitsSummary fits;
  std::vector<Ranking> ranking;  ///< groups of three or more predicted rows that ran, by name
};

/// The summary itself is over all rows.
struct ValidationReport : ValidationSummary {
  std::vector<ValidatedRow> rows;  ///< all rows the filter kept, in the table's order
  std::map<std::string, ValidationSummary> by_source;
};

struct ValidationOptions {
  std::optional<Calibration> calibration;  ///< for all rows; else the best shipped one for each
  std::string where;                       ///< planner/row_filter.hpp
};

/// Predicts every row. Error: a filter that cannot be read (reported at "--where"). A row that
/// cannot be predicted is skipped with its reason; it is never left out.
[[nodiscard]] Result<ValidationReport> validate(const std::vector<RunRow>& rows,
                                                const ValidationOptions& options = {});

}  // namespace echelon
