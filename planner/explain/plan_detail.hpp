// Details of one priced plan, in addition to its prediction: reserved memory and the timeline.
#pragma once

#include <vector>

#include "costmodel/schedule/lower_plan.hpp"
#include "planner/search/search.hpp"

namespace echelon {

/// Per stage, the peak with the caching allocator's reserve on top: what must be at most
/// request.usable_memory().
[[nodiscard]] std::vector<Bytes> reserved_peaks(const PlanRequest& request,
                                                const Candidate& candidate);

/// The lowered schedule of the candidate and when everything in it runs. May take seconds for
/// millions of instructions; instructions_of predicts their number.
[[nodiscard]] SimulatedStep simulate_plan(const PlanRequest& request, const Candidate& candidate);
[[nodiscard]] double instructions_of(const PlanRequest& request, const Candidate& candidate);

}  // namespace echelon
