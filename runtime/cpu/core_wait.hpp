// How long a thread was ready to run and had no processor core.
#pragma once

#include "core/base/units.hpp"

namespace echelon::cpu {

/// Of the calling thread, since it began: what Linux calls its run delay. Always 0 where the system
/// does not tell.
/// Source: Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat: time on the processor,
/// time waiting on a run queue, both in nanoseconds, and the number of time slices.
[[nodiscard]] Seconds waited_for_core();

}  // namespace echelon::cpu
