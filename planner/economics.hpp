// Money, days, energy and failures: what a step means for a whole training run.
#pragma once

#include <algorithm>
#include <optional>

#include "core/plan/cost.hpp"
#include "costmodel/cost_model.hpp"
#include "planner/space/request.hpp"

namespace echelon {

/// First-order optimum of the computation time between two checkpoints:  τ = √(2·δ·M)
///
///   δ  write  time one checkpoint stops the job for
///   M  mtbf   mean time between failures of the whole job
///
/// Source: Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974).
[[nodiscard]] Seconds young_interval(Seconds write, Seconds mtbf);

/// Higher-order optimum:  τ = √(2δM)·[1 + ⅓·√(δ/2M) + ⅑·(δ/2M)] − δ  for δ < 2M, else M.
/// Source: Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
/// Future Generation Computer Systems 22 (2006); his examples are the test's.
/// Checked by: tests/planner/economics_test.cpp, also against a search for the minimum.
[[nodiscard]] Seconds daly_interval(Seconds write, Seconds mtbf);

/// Useful time / expected wall time, with failures at a constant rate that also strike checkpoints
/// and restarts:  τ / ( M·e^(R/M)·(e^((τ+δ)/M) − 1) )
///
///   τ  interval  computation between two checkpoints        R  restart  from failure to computing
///
/// Source: Daly (2006), the complete cost function. Assumes independent, exponential failures, and
/// that a checkpoint stops the job for δ (an asynchronous one stops it for less).
[[nodiscard]] double useful_fraction(Seconds interval, Seconds write, Seconds restart,
                                     Seconds mtbf);

/// The cost of failures. It does not depend on the plan: the states of the whole model are the same
/// bytes.
///
/// The evidence of a figure is `measured` if a run of the same number of nodes (for the checkpoint:
/// and of the same bytes, within 2 %) has shown it; `calibrated` if it follows from another run's,
/// or was given for this site by a flag or by the cluster's description; `extrapolated` if it is
/// that of other machines. The interval has the weakest of the three.
///
/// A measured run has a rate of failures per node, a time to restart, and of checkpoints the rate
/// of writing and the part of that time for which the job stops (all of it, unless asynchronous).
/// Checked by: tests/planner/economics_test.cpp.
struct Goodput {
  Seconds mtbf;      ///< of the whole job: that of one node / nodes
  Bytes checkpoint;  ///< checkpoint_size()
  Seconds write;
  Seconds stall;  ///< of it, for which the job stops: δ of the formulas
  Seconds
      interval;  ///< Daly's, between two checkpoints; at least `write`, one is in flight at most
  Seconds restart;
  double fraction = 0;  ///< useful time / wall time
  Evidence of_mtbf = Evidence::extrapolated;
  Evidence of_checkpoint = Evidence::extrapolated;
  Evidence of_restart = Evidence::extrapolated;
  [[nodiscard]] Evidence evidence() const { return std::max({of_mtbf, of_checkpoint, of_restart}); }
};
/// Nothing when neither the machine nor the request nor a measured run knows how often a node
/// fails.
[[nodiscard]] std::optional<Goodput> goodput_of(const PlanRequest& request);
/// Whether an answer says what failures cost: for a number of tokens, for the objective goodput, or
/// where a run measured it.
[[nodiscard]] bool shows_goodput(const PlanRequest& request);
/// Weights, master weights and moments, once: of adapters where these alone are trained.
[[nodiscard]] Bytes checkpoint_size(const PlanRequest& request);
/// --checkpoint-every: the whole number of steps nearest to the interval, at least 1.
[[nodiscard]] std::int64_t steps_between_checkpoints(Seconds interval, Seconds step);

/// Tokens needed / tokens needed with very small batches:  1 + B / B_crit, or 1 when B_crit is
/// unknown. Source: McCandlish et al., arXiv 1812.06162: (S/S_min − 1)(E/E_min − 1) = 1 for S steps
/// and E samples, with B_crit = E_min/S_min and E = B·S, hence E = E_min·(1 + B/B_crit).
[[nodiscard]] double token_factor(const PlanRequest& request);

/// Price of a GPU hour: --gpu-price, else that of the cluster's description, which is its own or
/// the market's of its GPU.
[[nodiscard]] std::optional<Dollars> price_per_gpu_hour(const PlanRequest& request);

/// GPU time paid per step that counts:  GPUs · step / goodput, with goodput 1 where it is unknown.
/// The cost of a plan up to the price of a GPU, which no plan changes.
[[nodiscard]] Seconds paid_per_step(const PlanRequest& request, Seconds step);

/// Share of its board power that a GPU draws while its kernels run, while it waits for a
/// collective, and while it waits for other stages, the host or data. Assumptions, not
/// measurements: no published source with all three was found. What is published bounds the whole
/// node: 76 % of the rated 10.2 kW of 8 H100 in intensive training (arXiv 2506.14551), 82 % at most
/// (Latif et al., "Empirical Measurements of AI Training Power Demand on a GPU-Accelerated Node").
inline constexpr double kPowerOfKernels = 0.9;
inline constexpr double kPowerOfCollectives = 0.6;
inline constexpr double kPowerOfWaiting = 0.35;

/// Energy of all GPU boards; not of hosts, network and cooling.
struct Energy {
  Joules per_step;
  Joules most_per_step;              ///< at full board power from the first to the last moment
  std::optional<Joules> for_budget;  ///< failures included where their rate is known
};
/// Board power · GPUs · Σ share · time over the parts of a step: compute, recompute and optimizer
/// run kernels, exposed communication waits for collectives, the rest waits. Nothing where the
/// board power is unknown. Checked by: tests/planner/economics_test.cpp.
[[nodiscard]] std::optional<Energy> energy_of(const PlanRequest& request,
                                              const CostBreakdown& parts);

/// Money and days. Unknown where the price, the token budget or the failure rate is.
struct Economics {
  Seconds step;
  Seconds gpu_time;  ///< paid_per_step()
  std::optional<Dollars> per_step;
  std::optional<Dollars> per_token;         ///< without failures
  std::optional<Dollars> for_budget;        ///< without failures
  std::optional<Seconds> time_for_budget;   ///< without failures
  std::optional<Dollars> expected_dollars;  ///< failures included
  std::optional<Seconds> expected_time;
  double token_factor = 1;  ///< in both budgets
  std::optional<Goodput> goodput;
  std::optional<Energy> energy;  ///< only of a whole prediction
};
/// Of a plan with this step time on the request's cluster.
[[nodiscard]] Economics economics_of(const PlanRequest& request, Seconds step);
/// … with the energy of its parts.
[[nodiscard]] Economics economics_of(const PlanRequest& request, const TimePrediction& time);

}  // namespace echelon
