// Flags that pin an axis of the plan.
#pragma once

#include "cli/flags/settings.hpp"
#include "core/plan/plan_file.hpp"
#include "planner/space/request.hpp"

namespace echelon::cli {

/// Errors: not a number, zero, negative, unknown name; an axis this version does not price.
[[nodiscard]] Result<PlanConstraints> constraints_of(const Settings& settings);
/// `pinned` without the fields that depend on the number of layers.
[[nodiscard]] PlanConstraints without_layers(PlanConstraints pinned);
/// `pinned` overlaid with `changes`; values that follow from a changed degree are freed.
[[nodiscard]] PlanConstraints changed_by(PlanConstraints pinned, const PlanConstraints& changes);

}  // namespace echelon::cli
