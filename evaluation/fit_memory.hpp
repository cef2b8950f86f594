// Fits the memory rates of a calibration. Judged out of fold with the times, evaluation/fit.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/calibration/calibration.hpp"
#include "costmodel/calibration/fit/fit.hpp"
#include "costmodel/cost_model.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// Memory rates of a framework: contexts, buffers and allocators are the same on GPUs of every
/// family.
struct FittedMemory {
  std::string framework;  ///< Framework::calibration_key()
  int figures = 0;        ///< peaks, allocated and reserved ones of a run counted apart
  std::vector<FittedRate> rates;

  /// Writes the rates and their sources into `calibration`.
  void write_to(Calibration& calibration) const;
};
/// The memory rates of one site after its runs, starting from `base`: one peak is enough. No rates
/// without a peak; the band stays that of `base`. Checked by: tests/evaluation/fit_memory_test.cpp.
[[nodiscard]] FittedMemory fit_site_memory(const std::vector<MeasuredRun>& rows,
                                           const Calibration& base);

/// Writes the fit of the calibration's framework. Nothing if there is none.
void write_memory(const std::vector<FittedMemory>& fits, Calibration& calibration);

/// A row with information on memory, ready to be priced repeatedly.
struct MemoryRun {
  std::size_t row = 0;
  std::string framework;  ///< calibration_key()
  CostModel cost_model;
  ParallelPlan plan;
  ShardingCosts costs;
  Calibration prior;
  std::optional<double> measured;  ///< bytes; none if the figure is not to be compared
  std::optional<double> reserved;  ///< … where the row gives it next to another figure
  bool counts_for_fits = true;
  bool own_software = true;  ///< the framework's, not one that it stands for
};

/// What a run tells of its framework's memory band.
struct MemoryOutcome {
  std::size_t row = 0;
  std::string framework;  ///< calibration_key()
  double log_need = 0;    ///< ln(predicted need / memory of a GPU)
  bool ran = true;        ///< … or ended out of memory
  bool counts_for_fits = true;
  /// ln(measured / predicted) of its peak; none of figures of nvidia-smi, which hold cached blocks,
  /// nor of software that the framework only stands for, which may keep other tensors.
  std::optional<double> log_error;
};

/// The rows of a table that tell of memory.
class MemoryRuns {
 public:
  /// `rows` must outlive it.
  explicit MemoryRuns(const std::vector<MeasuredRun>& rows);

  /// Fits every framework to its rows. `use` may leave rows out, by their index: then those
  /// frameworks that it leaves rows of, to the others; what is fitted predicts what is left out.
  /// Frameworks of fewer than four figures keep the prior's rates.
  /// Checked by: tests/evaluation/fit_memory_test.cpp.
  [[nodiscard]] std::vector<FittedMemory> fit(const std::function<bool(std::size_t)>& use = {});
  /// The rows that `of` accepts, predicted with `fits` (of frameworks without a fit: the prior).
  /// Predicted peaks have no limit: a run that had to do with less memory needed less.
  [[nodiscard]] std::vector<MemoryOutcome> outcomes(const std::vector<FittedMemory>& fits,
                                                    const std::function<bool(std::size_t)>& of);
  [[nodiscard]] const std::vector<MemoryRun>& runs() const { return runs_; }
  [[nodiscard]] std::vector<MemoryRun*> each();  ///< to price again

 private:
  const std::vector<MeasuredRun>* rows_;
  std::vector<MemoryRun> runs_;
};

}  // namespace echelon
