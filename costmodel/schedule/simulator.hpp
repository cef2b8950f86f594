// The simulator: runs a lowered schedule against a table of times.
#pragma once

#include "costmodel/schedule/costs.hpp"
#include "costmodel/schedule/timeline.hpp"

namespace echelon {

/// When every instruction runs. Every queue of every rank runs its instructions in order; one
/// starts when the one before it on its queue and all it waits for are over. The ends of a
/// communication (same place in the order of communications) start together, when the last is
/// ready, and each occupies its queue until the end: what in-order streams with blocking sends do.
///
/// Deterministic; linear in the number of instructions; no allocation per event. Instructions must
/// have the form check_schedule demands first (ids, dependencies, queues); a schedule whose order
/// deadlocks returns who waits for what.
/// Checked by: tests/costmodel/schedule/simulator_test.cpp.
[[nodiscard]] Timeline simulate(const Schedule& schedule, const ScheduleCosts& costs);

}  // namespace echelon
