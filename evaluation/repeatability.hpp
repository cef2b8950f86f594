// The noise floor of a table: the spread of measurements of one configuration.
#pragma once

#include <map>
#include <span>
#include <string>

#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// Over configurations a source measured more than once: max / min − 1 of their step times. No
/// model can be expected to do better than this.
struct NoiseFloor {
  int groups = 0;  ///< configurations measured more than once
  int rows = 0;    ///< … their rows
  double mean = 0;
  double median = 0;
  double largest = 0;
};

/// By source; sources without repeated measurements are left out. Two rows are one configuration if
/// every column that describes the job agrees, except for the network figures and free text about
/// the software version; rows that lack a batch, a degree or a shape are ignored.
/// Checked by: tests/evaluation/repeatability_test.cpp.
[[nodiscard]] std::map<std::string, NoiseFloor> noise_of(std::span<const MeasuredRun> rows);

}  // namespace echelon
