// How long each rank computes, and which one the others wait for.
#pragma once

#include <span>
#include <vector>

#include "core/run/run_report.hpp"
#include "core/schedule/schedule.hpp"
#include "runtime/executor/measured.hpp"

namespace echelon {

/// Time in which the compute queue works on its own instructions, mean of the steps: without
/// communication within them, waiting, and time in which its thread had no core. 0 without steps.
[[nodiscard]] Seconds own_compute(const Program& program, std::span<const StepTimes> steps);

/// Sets `behind` of every rank, from `computes` of all.
/// Checked by: tests/runtime/training/rank_times_test.cpp.
void compare_ranks(std::vector<RankTime>& ranks);

}  // namespace echelon
