// The rates of one site after its first runs: a fit that starts from a calibration for all sites.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/calibration/calibration.hpp"
#include "costmodel/calibration/fit/fit.hpp"
#include "evaluation/fit_levels.hpp"
#include "evaluation/next_run.hpp"
#include "evaluation/refit.hpp"

namespace echelon {

/// The factor of a site's speed, the first of its fitted rates; no field of a calibration.
inline constexpr const char* kSiteSpeed = "site_speed";

/// `base` on a site where everything takes 1 / `speed` of the time: rates of kernels, links and
/// host times `speed`, latencies divided by it; shares, ramps and memory stay. Checked by:
/// tests/evaluation/site_fit_test.cpp.
[[nodiscard]] Calibration with_speed(Calibration base, double speed);

struct SiteFit {
  Calibration calibration;
  std::string prior;              ///< name of the calibration it started from
  double prior_band = 0;          ///< its time band
  std::vector<FittedRate> rates;  ///< kSiteSpeed, then the others without it
  std::vector<RefitRun> runs;     ///< in the order given
  KnownRates known;               ///< for next_run()
};

/// The maximum of the posterior of one site's rates after its `runs`, which may be one. The prior
/// is `base`: ln of the site's speed has the standard deviation `kSpeedSpread`, and the rates those
/// of time_parameters() times a share that is 1 for kernels and 0.3 for others (site_fit.cpp); they
/// are independent, so that a rate moves only as far as the runs tell it from the site's speed. A
/// run's ln(measured) scatters by `kRunSpread`; n runs of one model on as many GPUs weigh 1/√n
/// each.
///
/// The time band is that of narrowed_band(). At least one run, all of one GPU and framework.
/// Checked by: tests/evaluation/site_fit_test.cpp, and on published runs by `plan validate
/// --first-runs`.
[[nodiscard]] SiteFit fit_site(const Runs& runs, const Calibration& base,
                               const std::vector<std::string>& names);

/// The runs' plans and models under the fitted rates.
[[nodiscard]] std::vector<PlanToPrice> plans_of(const Runs& runs, const Calibration& calibration);

/// Standard deviations of ln(step), chosen on published runs of publishers left out:
/// `plan validate tests/validation/runs.csv --first-runs 1,3,6` (docs/accuracy-notes.md, First
/// runs): errors change by less than 3 % of themselves for 0.1 to 0.2 and 0.06 to 0.1 (ratios after
/// / before).
inline constexpr double kSpeedSpread = 0.15;
inline constexpr double kRunSpread = 0.08;

}  // namespace echelon
