// Flags that pin an axis of the plan.
#pragma once

#include "cli/settings.hpp"
#include "core/plan/plan_file.hpp"
#include "planner/space/request.hpp"

namespace echelon::cli {

/// Errors: not a number, zero, negative, unknown name; an axis this version does not price.
[[nodiscard]] Result<PlanConstraints> constraints_of(const Settings& settings);
/// Flags of the contract that this version cannot honour yet are errors that say so.
[[nodiscard]] Status check_supported(const Settings& settings);
/// `pinned` without what depends on how many layers the model has.
[[nodiscard]] PlanConstraints without_layers(PlanConstraints pinned);
/// `pinned` with what `changes` pins instead; values that follow from a changed degree are freed.
[[nodiscard]] PlanConstraints changed_by(PlanConstraints pinned, const PlanConstraints& changes);

}  // namespace echelon::cli
