// The memory bands that calibrations deserve by runs to which no memory rate was fitted.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "costmodel/calibration/calibration.hpp"
#include "evaluation/fit_memory.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// A run that ran or ended out of memory, by x = ln(predicted need / memory of a GPU).
struct FitOutcome {
  double log_need = 0;
  bool ran = true;
};
/// The logistic with the largest likelihood of the outcomes, P = 1 / (1 + exp((x + bias) /
/// spread)), kind measured, where
///
///   a run is odd with probability 2 · kOddOutcomes (it failed for another reason, or the table is
///   wrong) and says nothing: it ran with probability ε + (1 − 2ε)·P. Source: Copas, "Binary
///   regression models for contaminated data" (1988); by expectation and maximization, Newton's
///   method for 1/spread and bias/spread inside
///   a run out of memory counts as kWeightOutOfMemory runs: a search prefers plans whose need is
///   predicted too small, and a plan that cannot run costs more than one not offered
///
/// Nothing if an end is missing or there is no such limit (runs out of memory do not need more than
/// the others). Where the ends do not overlap, the spread is `kLeastLogisticSpread` and the bias in
/// the middle of the gap. Checked by: tests/evaluation/held_out_memory_test.cpp.
inline constexpr double kOddOutcomes = 0.01;
inline constexpr double kWeightOutOfMemory = 2;
inline constexpr double kLeastLogisticSpread = 0.005;
[[nodiscard]] std::optional<MemoryBand> fit_logistic(std::span<const FitOutcome> outcomes);

/// Outcomes of runs, each predicted by memory rates fitted without the run's part.
class HeldOutMemory {
 public:
  HeldOutMemory() = default;
  explicit HeldOutMemory(const std::vector<MeasuredRun>& rows);

  /// Of runs in `part`.
  void add(std::span<const MemoryOutcome> outcomes, int part);

  /// Sets the memory band from all parts but `left_out`:
  ///
  ///   at least 20 runs of the framework out of memory, and 20 that ran: fit_logistic, measured;
  ///   else thirty peaks of the framework from three publishers, else, unless its blocks are
  ///   planned before the step (Framework::fixed_blocks), peaks of all software:
  ///   mean and standard deviation of ln(measured / predicted), n peaks of one publisher weighing
  ///   1/√n each, at least 3 %, extrapolated;
  ///   else the band stays, which is the prior's or none.
  void set_band(Calibration& calibration, std::optional<int> left_out = {}) const;

 private:
  struct One {
    MemoryOutcome outcome;
    int part = 0;
  };
  [[nodiscard]] std::optional<MemoryBand> measured_band(const std::string& framework,
                                                        std::optional<int> left_out) const;
  /// Of all software where `framework` is empty.
  [[nodiscard]] std::optional<MemoryBand> extrapolated_band(const std::string& framework,
                                                            std::optional<int> left_out) const;

  std::vector<std::string> publishers_;  ///< of every row
  std::vector<One> all_;
};

/// Parts of the rows of each framework: its publishers; of a framework with only one, parts of
/// folds (evaluation/cv_folds.hpp). Returns the part of every row, from 0.
[[nodiscard]] std::vector<int> memory_parts(const std::vector<MeasuredRun>& rows,
                                            const MemoryRuns& runs, int parts);
/// Every row of `runs` predicted by a fit to the other parts.
[[nodiscard]] HeldOutMemory hold_out_memory(const std::vector<MeasuredRun>& rows, MemoryRuns& runs,
                                            std::span<const int> part_of_rows);

}  // namespace echelon
