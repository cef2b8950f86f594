// "tp=4,pp=2": a configuration in a few words.
#pragma once

#include "cli/flags/settings.hpp"
#include "planner/space/request.hpp"

namespace echelon::cli {

/// key=value pairs separated by commas or blanks. Keys are the flags of a plan
/// (core/plan/plan_fields.hpp) or short for one: sp, mb. Words without = after a list belong to it:
/// layers-per-stage=9,8,8,7. Errors name the character where they begin.
[[nodiscard]] Result<PlanConstraints> parse_why_not(const Setting& setting);

}  // namespace echelon::cli
