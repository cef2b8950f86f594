// Validation: predicts every row of a table of measured runs and summarizes the errors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "core/plan/cost.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "costmodel/calibration/memory_band.hpp"
#include "costmodel/cost_model.hpp"
#include "evaluation/calibration_set.hpp"
#include "evaluation/error_summary.hpp"
#include "evaluation/first_runs.hpp"
#include "evaluation/measured_runs_csv_io.hpp"
#include "evaluation/repeatability.hpp"
#include "evaluation/row_quality.hpp"

namespace echelon {

/// One row and its prediction. Errors are predicted / measured − 1.
struct ValidatedRow {
  std::string row_id, source, group;
  std::optional<Seconds> predicted_step, measured_step;
  Seconds low, high;        ///< 80 % band of predicted_step
  CostBreakdown parts;      ///< of predicted_step
  std::string calibration;  ///< name of the one used; "" without a prediction
  std::string nearest;      ///< why it is only the nearest; "" if fitted to this GPU and framework
  std::optional<double> time_error;
  std::optional<double> prior_time_error;  ///< … of the prior, to which no run was fitted
  std::optional<Bytes> predicted_peak, measured_peak;  ///< both as the row's memory_kind counts
  std::optional<double> memory_error;
  std::optional<Bytes> predicted_static, measured_static;  ///< weights, gradients, optimizer states
  std::optional<double> static_error;
  std::optional<Bytes> predicted_need;     ///< reserved, context and NCCL, on the fullest rank
  std::optional<double> fits_probability;  ///< costmodel/calibration/memory_band.hpp
  std::optional<bool> predicted_fits, measured_fits;  ///< predicted: with P >= 1/2
  double spare = 0;                                   ///< 1 − predicted need / memory of a GPU
  std::string framework;  ///< calibration_key(); "" without a prediction
  MemoryBand memory_band;
  std::string skipped;        ///< why there is no prediction; "" when there is one
  bool inferred = false;      ///< a relevant blank was filled by a default of the software
  std::string inferred_what;  ///< … which, "; " between them
  Evidence evidence = Evidence::extrapolated;  ///< of `calibration`
  std::string fold;                            ///< evaluation/cv_folds.hpp
  std::vector<RowQualityFlag> flags;
  std::vector<std::string> parts_of_source;  ///< subsets it belongs to: "nanotron, slow network"

  [[nodiscard]] bool flagged_for_time() const {
    return std::ranges::any_of(flags, &RowQualityFlag::time);
  }
  [[nodiscard]] bool flagged_for_memory() const {
    return std::ranges::any_of(flags, &RowQualityFlag::memory);
  }
  [[nodiscard]] bool flagged_for_fits() const {
    return std::ranges::any_of(flags, &RowQualityFlag::fits);
  }
};

/// Rows whose predicted spare memory, as a share of a GPU's, is at least `from` and less than the
/// next bin's `from`.
struct SpareBin {
  double from = 0;
  int rows = 0;
  int ran = 0;
  double probability = 0;  ///< mean predicted P(fits)
};
/// Lower ends of the bins; the first one has none.
inline constexpr std::array kSpareBins = {-1e9, -0.1, 0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5};

struct FitsSummary {
  int rows = 0;        ///< predicted rows known to have run or to have ended out of memory
  int ran = 0;         ///< … of these, that ran
  int false_fits = 0;  ///< predicted to fit, ended out of memory
  int false_ooms = 0;  ///< predicted not to fit, ran
  double brier = 0;    ///< mean of (P(fits) − 1 if it ran, − 0 if not)²
  std::vector<SpareBin> bins{};  ///< those with rows

  /// The same of a hard limit in the place of P = 1/2: the share of wrong answers.
  [[nodiscard]] double hard_brier() const {
    return rows == 0 ? 0 : static_cast<double>(false_fits + false_ooms) / rows;
  }
};

/// Predictions for one framework.
struct FrameworkFits {
  MemoryBand band;  ///< of its first row
  FitsSummary fits;
};

struct ValidationSummary {
  ErrorSummary time;
  ErrorSummary prior_time;  ///< of the priors alone, on the rows that are judged out of fold
  ErrorSummary memory;
  ErrorSummary static_memory;  ///< of the rows that report it separately
  FitsSummary fits;
  std::vector<Ranking> ranking;  ///< groups of three or more predicted rows that ran, by name
};

/// One summary over all rows and one without the flagged ones (evaluation/row_quality.hpp).
struct ValidationPair : ValidationSummary {
  ValidationSummary unflagged;
};

/// Means of the mean time errors of several groups, each of which counts the same.
struct GroupMeans {
  int groups = 0;
  double time = 0;
  double prior_time = 0;  ///< of the priors alone
};
[[nodiscard]] GroupMeans means_over(const std::map<std::string, ValidationPair>& groups);
/// The same over the rows that are not flagged.
[[nodiscard]] GroupMeans means_over_unflagged(const std::map<std::string, ValidationPair>& groups);

/// The summary itself is over all rows.
struct ValidationReport : ValidationPair {
  /// No calibration behind these figures was fitted to runs, so every row is judged out of fold.
  /// False otherwise: a fitted calibration may have seen the rows. Callers that predict each fold
  /// with parameters that have not seen it set it themselves.
  bool out_of_fold = true;
  std::vector<ValidatedRow> rows;  ///< all rows the filter kept, in the table's order
  std::map<std::string, ValidationPair> by_source;
  std::map<std::string, ValidationPair> by_part;      ///< sources of several grades or networks
  std::map<std::string, ValidationPair> by_left_out;  ///< groups judged by fits to all others
  std::map<std::string, FrameworkFits> by_framework;  ///< flagged rows left out
  std::map<std::string, NoiseFloor> noise;  ///< by source; only with repeated measurements
  std::optional<FirstRuns> first_runs;      ///< where it was asked for
};

struct ValidationOptions {
  std::optional<Calibration> calibration;  ///< for all rows; else the best one of a set
  /// Sets to look in instead of the shipped calibrations, and which of them for each row of the
  /// table: with a set that has not seen the row's fold it is judged out of fold.
  std::vector<CalibrationSet> sets{};
  std::vector<std::size_t> part{};
  std::vector<std::string> left_out{};  ///< of every row: the group its set has not seen; or empty
  AblatedFeature ablated = AblatedFeature::nothing;  ///< the model that predicts; for ablations
  std::string where;                                 ///< evaluation/row_filter.hpp
};

/// Predicts every row. Error: a filter that cannot be read (reported at "--where"). A row that
/// cannot be predicted is skipped with its reason; it is never left out.
[[nodiscard]] Result<ValidationReport> validate(const std::vector<MeasuredRun>& rows,
                                                const ValidationOptions& options = {});

}  // namespace echelon
