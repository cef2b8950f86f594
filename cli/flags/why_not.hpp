// "tp=4,pp=2": a configuration in a few words.
#pragma once

#include "cli/flags/settings.hpp"
#include "planner/space/request.hpp"

namespace echelon::cli {

/// key=value pairs separated by commas or blanks. Keys are flags of a plan (tp, pp, dp, vpp,
/// microbatch, zero, recompute, sequence-parallel ...) or short for one: sp, mb. Errors name the
/// character where they begin.
[[nodiscard]] Result<PlanConstraints> parse_why_not(const Setting& setting);

}  // namespace echelon::cli
