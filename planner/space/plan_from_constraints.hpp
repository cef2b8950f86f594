// The one plan that constraints describe.
#pragma once

#include <optional>

#include "planner/space/legality.hpp"
#include "planner/space/request.hpp"

namespace echelon {

/// The one configuration that the constraints describe, defaults filled in, checked. A default that
/// is not ParallelPlan's own follows: dp from the GPUs, the ZeRO group from dp and cp, the schedule
/// from vpp, sequence parallelism from tp, the policy from counts of recomputed layers, ZeRO and
/// the kind of context parallelism from the framework; layers are split evenly. Errors name the
/// flag: degrees that do not divide, contradictions, products that are not the GPUs.
/// `broken`: the rule behind an error, if the filled plan breaks one.
[[nodiscard]] Result<ParallelPlan> plan_from_constraints(
    const PlanRequest& request, std::optional<RejectionReason>* broken = nullptr);

}  // namespace echelon
