// Learning from runs: the measurements of executed plans, part by part, refit a machine's rates.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/framework/framework.hpp"
#include "core/run/run_report.hpp"
#include "core/schedule/schedule.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "costmodel/calibration/fit/fit.hpp"
#include "evaluation/next_run.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// A run whose report contains information about rates.
struct RunObservation {
  std::string name;  ///< of the report
  RunReport report;
  Schedule schedule;  ///< the plan's program
  ClusterTopology cluster;
  Framework framework;
};

/// Errors give the reason why nothing can be learned from the run: it failed, measured no step, or
/// did not execute its plan.
[[nodiscard]] Result<RunObservation> observed_run(std::string name, RunReport report,
                                                  const ClusterTopology& cluster,
                                                  const Framework& framework);

/// The step of one run before and after.
struct RefitRun {
  std::string name;
  Seconds measured;
  Seconds before;  ///< predicted with the initial rates
  Seconds after;   ///< … with the learned ones
};

struct Refit {
  Calibration calibration;
  std::vector<FittedRate> rates;
  std::vector<RefitRun> runs;
  double prior_band = 0;                ///< time band before
  KnownRates known;                     ///< for next_run(), …
  std::vector<PlanToPrice> plans = {};  ///< … with the runs' plans
};

/// Refits the rates of `base`, which are the priors, to all runs of one machine and framework. What
/// is compared, each with the weight of its share of the step:
///
///   the step                                              as a whole, weight 2
///   of the pipeline rank that finished last: compute, recomputation, exposed collectives of every
///   axis, the optimizer, waiting for the host             as the report has them
///   forward and backward of the other pipeline ranks      medians over their ranks, of their spans
///   transfers of parameters and gradients, messages       the same
///
/// If ranks share cores, times of single instructions do not determine rates, and only the step is
/// compared. The residual of a part is  ln((predicted + f) / (measured + f)),  f = 0.5 %
/// of the step: a ratio for large parts, a difference for small ones. From eight runs on the band
/// holds 80 % of those left out of a fit to the others; below it is that of `base`, narrowed as the
/// standard deviation of ln(step) is, averaged over the runs' plans and their neighbours, with the
/// scatter that the band stands for where the rates are known.
/// Checked by: tests/loop/refit_test.cpp (known rates are recovered).
[[nodiscard]] Refit refit(std::span<const RunObservation> runs, const Calibration& base);

}  // namespace echelon
