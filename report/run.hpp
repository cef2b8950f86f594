// A run: measured versus predicted, part by part; both timelines as one trace.
#pragma once

#include <string>

#include "core/run/run_report.hpp"
#include "core/schedule/schedule.hpp"
#include "costmodel/schedule/lower_plan.hpp"
#include "planner/search/search.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// One line: "2 ranks, 40 steps, loss 5.57 to 2.96; a step of 131 ms, predicted 130 ms (-0.8 %)".
[[nodiscard]] std::string run_summary(const RunReport& report);
/// Steps, then every part of the step and of memory next to its prediction.
[[nodiscard]] std::string run_text(const RunReport& report, const SimulatedStep& simulated,
                                   const TextStyle& style);
/// "step 12 of 20: loss 5.431, 12,345 tokens/s, 0.21 s a step, 2 s to go".
[[nodiscard]] std::string step_line(const RunStep& step, std::int64_t of);

/// Chrome's trace event format (Perfetto reads it too): the executed step and the simulated one,
/// each a process, with a thread per rank and queue; times in microseconds from the step's start.
/// Source: "Trace Event Format", Google, 2016.
[[nodiscard]] std::string run_trace(const RunReport& report, const SimulatedStep& simulated);
/// The simulated step alone, of a plan that was not run.
[[nodiscard]] std::string step_trace(const SimulatedStep& simulated);
/// Whether a step is short enough for a trace: an error with its number of instructions if not.
[[nodiscard]] Status check_traceable(const PlanRequest& request, const Candidate& candidate);

}  // namespace echelon
