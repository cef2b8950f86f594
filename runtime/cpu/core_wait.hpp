// Time that a thread was ready to run without a processor core.
#pragma once

#include "core/base/units.hpp"

namespace echelon::cpu {

/// Of the calling thread, since its start: its run delay in Linux. Always 0 if the system does not
/// report it.
/// Source: Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat: time on the processor,
/// time waiting on a run queue, both in nanoseconds, and the number of time slices.
[[nodiscard]] Seconds waited_for_core();

}  // namespace echelon::cpu
