// Fitted calibrations, for `plan fit`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "evaluation/fit.hpp"
#include "evaluation/refit.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// A table of the calibrations, with the rates of each that the runs determine.
[[nodiscard]] std::string fit_text(const FitTable& fitted, const TextStyle& style);
[[nodiscard]] std::string fit_json(const FitTable& fitted);

/// The result of a fit to run reports.
struct LearnedRates {
  int cores = 0;  ///< of a rank; 0: GPUs
  Refit learned;
};
/// The step of every run before and after, and the rates with their uncertainty; `left_out` lists
/// the unused reports with reasons.
[[nodiscard]] std::string learned_text(std::span<const LearnedRates> all,
                                       std::span<const std::string> left_out,
                                       const TextStyle& style);
[[nodiscard]] std::string learned_json(std::span<const LearnedRates> all,
                                       std::span<const std::string> left_out);

}  // namespace echelon
