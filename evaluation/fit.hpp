// Fits calibrations to a table of measured runs, and judges them on rows they have not seen.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "costmodel/calibration/fit/fit.hpp"
#include "costmodel/cost_model.hpp"
#include "evaluation/cv_folds.hpp"
#include "evaluation/measured_runs_csv_io.hpp"
#include "evaluation/observations.hpp"
#include "evaluation/validate.hpp"

namespace echelon {

/// One calibration of a fitted table.
struct FittedCalibration {
  Calibration calibration;        ///< named as calibration_name() looks it up
  std::string base;               ///< name of the calibration it starts from
  int runs = 0;                   ///< it was fitted to
  std::vector<FittedRate> rates;  ///< the fitted rates
  double median = 0;              ///< of |predicted / measured − 1| over its own runs: in fold
};

struct FitTable {
  std::vector<FittedCalibration> calibrations;  ///< from the general to the special
  int used = 0;                                 ///< rows fitted to
  std::vector<std::string> left_out;            ///< reasons with counts: "12 rows flagged for time"
};

/// Called now and then with the share done in [0, 1].
using FitProgress = std::function<void(double)>;

/// Calibrations for every part of a table, those that predict its rows, fitted to the others. Bands
/// are those of HeldOutErrors::set_band, from the errors of the other parts.
struct FoldedFit {
  std::vector<std::size_t> part;                     ///< of every row
  std::vector<std::vector<Calibration>> sets;        ///< of every part
  std::vector<std::string> left_out;                 ///< of every row: its group; or empty
  AblatedFeature ablated = AblatedFeature::nothing;  ///< the model they were fitted to
};
/// Folds (evaluation/cv_folds.hpp) are distributed over `parts` parts.
[[nodiscard]] FoldedFit fit_folds(const std::vector<MeasuredRun>& rows, int parts = 10,
                                  const WithoutTerm& without = {},
                                  const FitProgress& progress = {});
/// The same with all rows of a publisher, source, GPU or framework in one part: how well
/// predictions travel to a place whose runs were never seen.
[[nodiscard]] FoldedFit fit_left_out(const std::vector<MeasuredRun>& rows, LeaveOut by,
                                     const FitProgress& progress = {});

/// Every row predicted by calibrations that have not seen its fold. `where` chooses the rows that
/// are reported (evaluation/row_filter.hpp); an error if it cannot be read.
[[nodiscard]] Result<ValidationReport> validate_folds(const std::vector<MeasuredRun>& rows,
                                                      const FoldedFit& fit,
                                                      const std::string& where = {});

/// Fits every GPU family and framework of the table. From the general to the special: the prior of
/// the pair (data sheets); the rates that software with the same kernels
/// (Framework::kernels) has in common on all GPUs; the pair's own. Runs of several publishers are
/// fitted for other sites than theirs (Sites::any), and pairs without runs get what software with
/// the same kernels has in common; runs of one publisher are fitted for its site, from the priors.
/// Uses rows that ran, with a step time, of grade A or B, not flagged for time. Pairs of fewer than
/// four runs have no rates of their own. Bands hold 80 % of the errors on publishers (or, of one
/// publisher, parts of folds) left out, as in FoldedFit. What is shipped. Checked by:
/// tests/evaluation/fit_test.cpp.
[[nodiscard]] FitTable fit_with_bands(const std::vector<MeasuredRun>& rows, int parts = 10,
                                      const FitProgress& progress = {});

}  // namespace echelon
