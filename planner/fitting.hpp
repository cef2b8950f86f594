// Fitting calibrations to a table of measured runs, and judging them on rows they have not seen.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/calibration.hpp"
#include "core/result.hpp"
#include "costmodel/fit/fit.hpp"
#include "planner/runs_io.hpp"
#include "planner/validation.hpp"

namespace echelon {

/// One calibration of a fitted table.
struct FittedCalibration {
  Calibration calibration;        ///< named as calibration_names() looks it up
  std::string base;               ///< name of the calibration it starts from
  int runs = 0;                   ///< it was fitted to
  std::vector<FittedRate> rates;  ///< those that were free
  double median = 0;              ///< of |predicted / measured − 1| over its own runs: in fold
};

struct FitTable {
  std::vector<FittedCalibration> calibrations;  ///< from the general to the special
  int used = 0;                                 ///< rows fitted to
  std::vector<std::string> left_out;            ///< reasons with counts: "12 rows flagged for time"
};

/// Fits every (GPU family, stack) of the table, below it every software of several, below those
/// every release, each with its parent as the prior; parents of few runs hardly move. Uses rows
/// that ran, with a step time, of grade A or B, not flagged for time; `use` may leave out more.
/// Groups of fewer than four runs keep their parent's rates.
/// Checked by: tests/planner/fitting_test.cpp.
[[nodiscard]] FitTable fit_table(const std::vector<RunRow>& rows,
                                 const std::function<bool(std::size_t)>& use = {});

/// Told now and then the share done in [0, 1].
using FitProgress = std::function<void(double)>;

struct FoldOptions {
  int parts = 10;       ///< folds are dealt out to so many parts; each is predicted from the others
  std::string where{};  ///< planner/row_filter.hpp, of the rows that are reported
};

/// Every row predicted by calibrations fitted without its fold (planner/folds.hpp). The band of
/// each row holds 80 % of the rows of its (GPU family, stack, software) in the other parts. Error:
/// a filter that cannot be read.
[[nodiscard]] Result<ValidationReport> validate_out_of_fold(const std::vector<RunRow>& rows,
                                                            const FoldOptions& options = {},
                                                            const FitProgress& progress = {});

/// The same calibrations with the bands their out-of-fold errors deserve: what is shipped.
[[nodiscard]] FitTable fit_with_bands(const std::vector<RunRow>& rows, int parts = 10,
                                      const FitProgress& progress = {});

}  // namespace echelon
