// Fitted calibrations: what `plan fit` shows and writes.
#pragma once

#include <string>

#include "planner/fitting.hpp"
#include "report/style.hpp"

namespace echelon {

/// A table of the calibrations, and of each the rates that the runs had something to say about.
[[nodiscard]] std::string fit_text(const FitTable& fitted, const TextStyle& style);
[[nodiscard]] std::string fit_json(const FitTable& fitted);

}  // namespace echelon
