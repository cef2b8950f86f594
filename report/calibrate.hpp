// The measurements of `plan calibrate` as text.
#pragma once

#include <string>
#include <vector>

#include "core/run/measurements.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// Fitted rates, and their device: "1 core a rank", a GPU.
struct FittedRates {
  std::string heading;
  Calibration calibration;
};

/// A table of every operation with its rate, then of the fitted rates, a column each.
[[nodiscard]] std::string calibrate_text(const Measurements& measured,
                                         const std::vector<FittedRates>& rates,
                                         const TextStyle& style);

}  // namespace echelon
