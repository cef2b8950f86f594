// Fitted calibrations, for `plan fit`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluation/fit.hpp"
#include "evaluation/refit.hpp"
#include "evaluation/site_fit.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// A table of the calibrations, with the rates of each that the runs determine.
[[nodiscard]] std::string fit_text(const FitTable& fitted, const TextStyle& style);
[[nodiscard]] std::string fit_json(const FitTable& fitted);

/// The next run that would tell most, and how to start it.
struct NextRunAdvice {
  NextRun run;
  std::string like;                   ///< the run it resembles
  std::string changes;                ///< the flags in which it differs: "--tp 4 --dp 2"
  std::string flags;                  ///< all flags of its plan
  std::vector<std::string> commands;  ///< that run it; empty: there is no plan file to change
};
/// Optimizer steps of a run that is measured and then thrown away.
inline constexpr int kStepsOfNextRun = 20;

/// The rates of one site after its first runs.
struct SiteReport {
  SiteFit fit;
  std::vector<std::string> left_out;  ///< runs with reasons
  std::optional<NextRunAdvice> next;
  std::vector<std::string> doubts{};  ///< sentences on runs that the fit does not explain
};
/// The step of every run before and after, how far every rate moved, what is still unknown, the
/// band, and the next run.
[[nodiscard]] std::string site_fit_text(const SiteReport& report, const TextStyle& style);
[[nodiscard]] std::string site_fit_json(const SiteReport& report);

/// The result of a fit to run reports.
struct LearnedRates {
  int cores = 0;  ///< of a rank; 0: GPUs
  Refit learned;
  std::optional<NextRunAdvice> next{};
  std::vector<std::string> doubts{};  ///< sentences on what the rates hold besides the machine
};
/// The step of every run before and after, and the rates with their uncertainty; `left_out` lists
/// the unused reports with reasons.
[[nodiscard]] std::string learned_text(std::span<const LearnedRates> all,
                                       std::span<const std::string> left_out,
                                       const TextStyle& style);
[[nodiscard]] std::string learned_json(std::span<const LearnedRates> all,
                                       std::span<const std::string> left_out);

}  // namespace echelon
