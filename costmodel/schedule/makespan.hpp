// How long a pipeline takes, without building its schedule: what the search asks for its finalists.
#pragma once

#include "costmodel/schedule/compute_order.hpp"
#include "costmodel/schedule/costs.hpp"

namespace echelon {

/// How messages share a rank's link.
enum class Messages {
  one_at_a_time,  ///< per direction; what the simulator and in-order streams do
  passing,        ///< each takes its time and holds up nothing; what bounds in closed form assume
};

/// Time from the first forward to the last backward: exactly the makespan that `simulate` finds for
/// the schedule that `build_schedule` makes of the same shape and costs when nothing but forwards,
/// backwards and messages takes time (`costs.ranks` is not looked at). Two passes over the compute
/// order: the first with messages passing one another, the second with each direction of each rank
/// sending and receiving one at a time, in the order of the first. `passing` stops after the first.
/// Checked by: tests/costmodel/schedule/makespan_test.cpp.
[[nodiscard]] Seconds simulate_makespan(const PipelineShape& shape, const ScheduleCosts& costs,
                                        Messages messages = Messages::one_at_a_time);

}  // namespace echelon
