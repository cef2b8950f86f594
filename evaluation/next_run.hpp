// The next short run: of the plans near those already run, the one that would tell most.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "costmodel/calibration/fit/fit.hpp"
#include "costmodel/cost_model.hpp"

namespace echelon {

/// A plan and the model that prices it.
struct PlanToPrice {
  CostModel cost_model;
  ParallelPlan plan;
};

/// What a fit knows of the rates.
struct KnownRates {
  Calibration calibration;  ///< the fitted rates
  std::vector<FitParameter> parameters;
  std::vector<double> covariance;  ///< Fit::covariance
  double noise = 0;  ///< standard deviation of ln(measured / predicted) of a run with exact rates
  /// The calibration that the fitted rates stand for; the same, if empty.
  std::function<Calibration(const Calibration&)> applied{};
};

/// Plans of the same model, job, cluster and number of GPUs that differ from `run` in one choice:
/// tp, pp or cp doubled or halved, the microbatch doubled or halved, another ZeRO stage, another
/// recomputation. dp follows from the number of GPUs. Only plans that are legal and predicted to
/// fit, in this order.
[[nodiscard]] std::vector<ParallelPlan> neighbours_of(const PlanToPrice& run);

/// The time band β after a fit to `runs` with the errors `errors`:
///
///   β = β₀ · s · √((σ² + mean gᵀ C g) / min(σ² + mean gᵀ g, b²)),   s = max(1, √(mean error² /
///   σ²))
///
///   β₀  band before     σ  KnownRates::noise     C  covariance of the rates after the fit
///   g   slopes of ln(step) per spread of each rate; means over the runs' plans and their
///   neighbours b   = ln(1 + β₀) / 1.2816, the standard deviation that the band before stands for:
///   spreads of
///       rates that imply more do not narrow it further. The root is at most 1.
///
/// The share of the uncertainty that the runs removed narrows the band; runs that scatter more
/// around the fit than assumed widen it. Bounded to [0.005, 1]. Checked by:
/// tests/evaluation/site_fit_test.cpp; shares of runs inside: `plan validate --first-runs`.
[[nodiscard]] double narrowed_band(double before, const KnownRates& known,
                                   std::span<const PlanToPrice> runs,
                                   std::span<const double> errors);
/// The source of such a band.
[[nodiscard]] std::string narrowed_band_text(const Calibration& base, int runs);

struct NextRun {
  std::size_t like = 0;  ///< the run that it is a neighbour of
  ParallelPlan plan;
  Seconds step;  ///< predicted
  double uncertainty =
      0;            ///< standard deviation of ln(step) of its neighbourhood now: of the rates
  double then = 0;  ///< … after this run
};

/// Of the neighbours of `runs` that were not run, the one whose measurement reduces the variance of
/// ln(step), averaged over all runs and neighbours, most:
///
///   argmax_c  Σ_t (g_tᵀ C g_c)² / (σ² + g_cᵀ C g_c)
///
///   g  slopes of ln(step) per spread of each rate     C  covariance of the rates     σ  noise
///
/// Nothing without a legal neighbour. Source: Chaloner and Verdinelli, "Bayesian Experimental
/// Design: A Review", 1995, section 2.2 (average variance of predictions). Checked by:
/// tests/evaluation/site_fit_test.cpp.
[[nodiscard]] std::optional<NextRun> next_run(const KnownRates& known,
                                              std::span<const PlanToPrice> runs);

}  // namespace echelon
