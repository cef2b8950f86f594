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

/// Memory rates of one (GPU family, framework, software).
struct FittedMemory {
  std::string name;  ///< as calibration_names() writes it: "hopper-nanotron-nanotron"
  int runs = 0;      ///< with a memory figure
  std::vector<FittedRate> rates;
  int out_of_memory = 0;  ///< runs the limit was also read from; 0: the margin is the prior's
  Bytes fits_margin;

  /// Writes the rates, the margin and their sources into `calibration`.
  void write_to(Calibration& calibration) const;
};

/// Groups of fewer than four figures keep their priors. The margin needs twenty runs out of memory;
/// it minimises 2 · false fits + false alarms, as shares of the runs of either kind: a plan that
/// cannot run costs more than one not offered.
/// `use` may leave rows out, by their index.
/// Checked by: tests/evaluation/fit_memory_test.cpp.
[[nodiscard]] std::vector<FittedMemory> fit_memory(
    const std::vector<MeasuredRun>& rows, const std::function<bool(std::size_t)>& use = {});

/// Writes the fit that belongs to a calibration of that name: its own, that of the software whose
/// release it is, or the only software's below it. Nothing if there is none.
void write_memory(const std::vector<FittedMemory>& fits, Calibration& calibration);

}  // namespace echelon
