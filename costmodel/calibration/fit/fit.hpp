// Fitting a calibration: robust, regularised least squares over a few physical rates.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/calibration/calibration.hpp"

namespace echelon {

/// A rate that may be fitted, or two linked rates that keep their ratio.
struct FitParameter {
  std::string key;      ///< of calibration_fields()
  std::string along;    ///< a second rate scaled by the same factor, or empty
  double spread = 0.2;  ///< standard deviation of the prior: of ln(rate), or of the rate itself …
  bool additive = false;    ///< … for rates that may be zero: shares of overlap, losses
  double min = 0, max = 0;  ///< in the field's unit
};

/// Whether a fitted value lies at a bound of its parameter: the runs ask for a rate that cannot be,
/// so that a term is missing. Zero is no such bound: a share of nothing.
/// Checked by: tests/costmodel/calibration/fit_test.cpp.
[[nodiscard]] bool at_bound(const FitParameter& parameter, double value);

/// The rates that a table of step times can determine, with their priors' spread.
/// Every spread has its reason in fit.cpp.
[[nodiscard]] const std::vector<FitParameter>& time_parameters();
/// The same for tables of peak memory.
[[nodiscard]] const std::vector<FitParameter>& memory_parameters();

/// The result for one parameter.
struct FittedRate {
  std::string key;
  double prior = 0;  ///< in the field's unit
  double value = 0;
  double low = 0, high = 0;  ///< one standard deviation either way, from the curvature at the end
  bool at_bound = false;     ///< a failed fit: the runs ask for a rate beyond its range
  double learned = 0;        ///< 1 − variance after / variance before: 0 without information
};

struct Fit {
  Calibration calibration;
  std::vector<FittedRate> rates;
  std::vector<double> errors;  ///< ln(predicted / measured) of each observation, in order
  /// Covariance of the rates at the end, in units of their priors' spreads, row by row: from the
  /// curvature, as `low` and `high`. Before the fit it was the identity.
  std::vector<double> covariance;
  int iterations = 0;
};

/// ln(predicted / measured) of every observation under a calibration, into a span of fixed size.
/// Must be finite.
using LogErrors = std::function<void(const Calibration&, std::span<double>)>;

struct FitOptions {
  double noise = 0.04;  ///< irreducible scatter of ln(measured): where |e| becomes linear
  int max_iterations = 30;
};

/// Minimises  Σᵢ wᵢ·ρ(eᵢ/noise) + Σⱼ ((xⱼ − x⁰ⱼ)/spreadⱼ)²  over the given rates of `base`, with
/// ρ(r) = 2·(√(1 + r²) − 1) (pseudo-Huber): quadratic below the noise, linear above, so that one
/// stalled run does not distort the rates. Levenberg-Marquardt with central differences; bounds by
/// projection. Deterministic.
/// Source: Levenberg 1944; Barron, "A General and Adaptive Robust Loss Function" (alpha = 1).
/// Checked by: tests/costmodel/calibration/fit_test.cpp (known rates are recovered, outliers
/// are ignored).
[[nodiscard]] Fit fit_rates(const Calibration& base, std::span<const FitParameter> parameters,
                            std::span<const double> weights, const LogErrors& errors,
                            const FitOptions& options = {});

/// How a value changes with the rates at `calibration`: its derivatives, per spread of each rate,
/// by central differences. `value` must be finite, for example ln(step) of a plan.
[[nodiscard]] std::vector<double> slopes_at(const Calibration& calibration,
                                            std::span<const FitParameter> parameters,
                                            const std::function<double(const Calibration&)>& value);

/// gᵀ·C·h: the covariance of two values with the slopes g and h (slopes_at) under the covariance C
/// of the rates (Fit::covariance); of one value with itself, its variance.
[[nodiscard]] double covariance_of(std::span<const double> g, std::span<const double> h,
                                   std::span<const double> covariance);

/// Sets the sources of the calibration's fitted rates: of those of which at least the share
/// `learned` is known from the `runs`.
void write_fit_sources(const Fit& fit, std::span<const FitParameter> parameters, int runs,
                       double learned, Calibration& calibration);

}  // namespace echelon
