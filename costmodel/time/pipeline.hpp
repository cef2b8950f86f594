// The pipeline in closed form: in-flight activations and time, per schedule.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/units.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// Microbatches whose activations one stage holds at its peak, in units of one chunk
/// (= layers/(pp·vpp) layers): 1F1B min(m, pp − s); GPipe m; interleaved
/// min(m·v, 2(pp − s − 1) + (v − 1)·pp + 1); ZB-H1 min(m, pp) on every stage, because stage s puts
/// its weight gradients off by s microbatches.
/// Source: Megatron-LM schedules.py (warm-up counts); Korthikanti et al. (arXiv 2205.05198) sec. 4;
/// Qi et al. (arXiv 2401.10241) section 2.1 (ZB-H1).
/// Checked by: tests/costmodel/schedule/closed_forms_test.cpp, against the simulated schedules.
[[nodiscard]] std::int64_t chunks_in_flight(ScheduleKind schedule, int pp, int vpp, int stage,
                                            std::int64_t microbatches);

/// Time from the first forward to the last backward, when the stages' times per microbatch (all
/// chunks, forward + backward) sum to `sum` and the slowest takes `slowest`:
///
///   1F1B, GPipe   Σt + (m − 1)·max t           exact for equal stages: (m + p − 1)·t
///   interleaved   m·max t + (Σt − max t)/v     exact for equal stages when p divides m:
///                                              m·t + (p − 1)·t/v
///   ZB-H1         max(m·max t + (Σt − max t)/3, (2(Σt + (m − 1)·max t) + max t)/3)
///                                              exact for equal stages whose forward, input
///                                              gradient and weight gradient each take t/3: a
///                                              bubble of (p − 1)·t/3; the second form holds for m
///                                              < p
///
/// Source: Narayanan et al. (arXiv 2104.04473) section 2.2; Alpa (arXiv 2201.12023), the
/// stage-latency objective; Qi et al. (arXiv 2401.10241) section 2.1. An upper bound for unequal
/// stages under 1F1B.
/// Checked by: tests/costmodel/time/pipeline_test.cpp, schedule_closed_forms_test.cpp.
[[nodiscard]] Seconds pipeline_time(ScheduleKind schedule, Seconds sum, Seconds slowest, int vpp,
                                    std::int64_t microbatches);

/// The same from the stages themselves.
[[nodiscard]] Seconds pipeline_time(ScheduleKind schedule, std::span<const Seconds> stages, int vpp,
                                    std::int64_t microbatches);

}  // namespace echelon
