// The next run, as flags and commands.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "report/fit.hpp"

namespace echelon::cli {

/// Advice for a fit to `runs`, whose names are `names`; nothing if no neighbouring plan is legal
/// and fits. `plan_files`: the plan file of each run, whose changes the commands run; empty
/// without.
[[nodiscard]] std::optional<NextRunAdvice> next_run_advice(const KnownRates& known,
                                                           std::span<const PlanToPrice> runs,
                                                           std::span<const RefitRun> names,
                                                           std::span<const std::string> plan_files);

}  // namespace echelon::cli
