// How much the first runs of a site improve the predictions of its other runs.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

struct FoldedFit;

/// Errors of the rest of a source after some of its runs.
struct FirstRunsErrors {
  int runs = 0;        ///< of the same GPU and framework that were fitted to
  int rows = 0;        ///< of the sites that have more runs than that; 0: none, and no errors
  double before = 0;   ///< mean |predicted / measured − 1| of the rest, without them
  double after = 0;    ///< … of the same rest, with them
  double in_band = 0;  ///< share of the rest inside the 80 % band, with them
};

struct FirstRunsSource {
  std::string source;
  int rows = 0;
  std::vector<FirstRunsErrors> errors;  ///< by number of runs, as asked
};

struct FirstRuns {
  std::vector<FirstRunsSource> sources;  ///< of ten rows or more, by name
  std::vector<FirstRunsErrors> means;    ///< over the sources, each counts the same; rows: sources
};

inline constexpr int kFewestRowsOfSource = 10;
inline constexpr int kDrawsOfFirstRuns = 8;

/// For every source of at least kFewestRowsOfSource rows that can be fitted to and are not flagged:
/// of each of its sites (GPU and framework), k runs are drawn, fit_site() starts from the
/// calibration of `fit` that has not seen the source, and the site's other runs are predicted with
/// it. Draws are random with a fixed seed, kDrawsOfFirstRuns of them, and do not depend on measured
/// times. Means are over the rows of sites that have more than k. `counts`: k, each at least 1.
/// Checked by: tests/evaluation/first_runs_test.cpp.
[[nodiscard]] FirstRuns judge_first_runs(const std::vector<MeasuredRun>& rows, const FoldedFit& fit,
                                         std::span<const int> counts,
                                         const std::function<void(double)>& progress = {});

}  // namespace echelon
