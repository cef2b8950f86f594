// The levels of a fit: what all runs of a kind have in common moves the rates that each starts
// from.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/framework/framework.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "costmodel/calibration/fit/fit.hpp"
#include "costmodel/cost_model.hpp"

namespace echelon {

/// A row that can be fitted to, ready to be priced again and again.
struct Observation {
  std::size_t row = 0;
  std::string family, framework;
  std::string source;
  std::string publisher;  ///< … of the source; the source where the table names none
  std::string other;      ///< the software whose run it is, if `framework` only stands for it
  KernelLibrary kernels{};
  CostModel cost_model;
  ParallelPlan plan;
  LayerSharding sharding;
  double measured = 0;  ///< seconds
  Calibration prior;
  std::vector<Stage> stages{};  ///< of the plan, found once: no rate changes them
  TimePrediction scratch{};
};
using Runs = std::vector<Observation*>;

/// n items of one group contain less information than n of different groups: each weighs 1/√n.
/// `groups` names that of every item.
[[nodiscard]] std::vector<double> shared_weights(std::span<const std::string_view> groups);

/// ln(predicted / measured) of a run's step.
[[nodiscard]] double log_error(Observation& run, const Calibration& calibration);

/// The rates that runs start from.
using StartOf = std::function<const Calibration&(const Observation&)>;

/// Standard deviation of ln(step) between publishers of runs on like machines with like software.
/// Chosen, with the shares of spreads in fit.cpp, by the errors of publishers left out
/// (docs/accuracy-notes.md).
inline constexpr double kSiteSpread = 0.2;

/// Whose predictions a fit is for.
enum class Sites {
  any,  ///< other sites than those of the runs: what a publisher's runs have in common stays there
  own,  ///< the site of the runs, which all come from it
};

/// How far a fit moved the rates of the calibration it started from.
class Moves {
 public:
  Moves(Fit fit, std::vector<FitParameter> parameters)
      : fit_(std::move(fit)), parameters_(std::move(parameters)) {}

  /// Moves the same rates of another calibration: by the same factor, or difference where a rate is
  /// additive, within its bounds.
  void apply(Calibration& calibration) const;
  [[nodiscard]] const Fit& fit() const { return fit_; }
  [[nodiscard]] std::span<const FitParameter> parameters() const { return parameters_; }

 private:
  Fit fit_;  ///< of the calibration that the first run started from
  std::vector<FitParameter> parameters_;
};

/// Fits how far rates lie from those that each run starts from, in the same direction for all runs.
/// n runs of one source contain less information than n runs of different ones, so each weighs
/// 1/√n. What the runs of a publisher have in common beyond the rates (its machines, containers and
/// habits) is a random effect for Sites::any: a factor of their steps whose logarithm has the
/// standard deviation `kSiteSpread`. It is not carried into predictions: of the publisher's errors
/// only what the rates explain better than such a factor moves a rate. Source: Gelman and Hill,
/// "Data Analysis Using Regression and Multilevel/Hierarchical Models", chapters 12 and 13. Checked
/// by: tests/evaluation/fit_levels_test.cpp.
[[nodiscard]] Moves fit_moves(std::vector<FitParameter> parameters, const Runs& runs,
                              const StartOf& start, Sites sites);

}  // namespace echelon
