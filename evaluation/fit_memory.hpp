// Fits the memory rates of a calibration. Judged out of fold with the times, evaluation/fit.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "costmodel/calibration/calibration.hpp"
#include "costmodel/calibration/fit/fit.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// Memory rates of a framework: contexts, buffers and allocators are the same on GPUs of every
/// family.
struct FittedMemory {
  std::string framework;  ///< Framework::calibration_key()
  int figures = 0;        ///< peaks, allocated and reserved ones of a run counted apart
  std::vector<FittedRate> rates;
  int out_of_memory = 0;  ///< runs the limit was also read from; 0: the margin is the prior's
  Bytes fits_margin;

  /// Writes the rates, the margin and their sources into `calibration`.
  void write_to(Calibration& calibration) const;
};

/// Frameworks of fewer than four figures keep the prior's rates. The margin needs
/// twenty runs out of memory; it minimises 2 · false fits + false alarms, as shares of the runs of
/// either kind: a plan that cannot run costs more than one not offered.
/// `use` may leave rows out, by their index.
/// Checked by: tests/evaluation/fit_memory_test.cpp.
[[nodiscard]] std::vector<FittedMemory> fit_memory(
    const std::vector<MeasuredRun>& rows, const std::function<bool(std::size_t)>& use = {});

/// The memory rates of one site after its runs, starting from `base`: one peak is enough. No rates
/// without a peak; the margin stays that of `base`. Checked by:
/// tests/evaluation/fit_memory_test.cpp.
[[nodiscard]] FittedMemory fit_site_memory(const std::vector<MeasuredRun>& rows,
                                           const Calibration& base);

/// Writes the fit of the calibration's framework. Nothing if there is none.
void write_memory(const std::vector<FittedMemory>& fits, Calibration& calibration);

}  // namespace echelon
