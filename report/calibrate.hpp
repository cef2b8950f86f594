// What `plan calibrate` measured, told.
#pragma once

#include <string>
#include <vector>

#include "core/measurements.hpp"
#include "costmodel/calibration_io.hpp"
#include "report/style.hpp"

namespace echelon {

/// A table of every operation with its rate, then of the fitted rates for each size of a rank.
[[nodiscard]] std::string calibrate_text(const std::vector<Measurement>& all,
                                         const std::vector<CalibrationByCores>& rates,
                                         const TextStyle& style);

}  // namespace echelon
