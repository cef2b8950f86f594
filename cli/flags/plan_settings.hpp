// A plan as settings: the flags that pin it, what follows from an edit, the command that names it.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/request.hpp"

namespace echelon::cli {

/// The flags of the pinned fields, as the command line spells them: constraints_of() of them gives
/// the same constraints.
[[nodiscard]] Settings settings_of(const PlanConstraints& pinned);
/// Every flag of `plan`.
[[nodiscard]] Settings settings_of(const ParallelPlan& plan);

/// `plan` (flags of one configuration) after `flag` became `text` ("" takes the flag away). Values
/// that follow from a changed degree are derived again (changed_by()), except those in `locked`.
/// A changed dp is compensated by pp, tp or cp, the first of them that is not locked and makes the
/// plan legal for `request`. Invalid text is kept as it is: pricing it reports the error.
[[nodiscard]] Settings edited(const PlanRequest& request, const Settings& plan,
                              const std::string& flag, const std::string& text,
                              const std::set<std::string>& locked);

/// A value a degree may be set to, and whether the plan is then legal.
struct SliderTick {
  int value = 0;
  bool legal = false;
  bool operator==(const SliderTick&) const = default;
};
/// Where a slider for `flag` stops (values_to_offer() in planner/space/candidates.hpp). Ascending;
/// empty for flags whose values are not whole numbers.
[[nodiscard]] std::vector<SliderTick> slider_ticks_of(const PlanRequest& request,
                                                      const Settings& plan, const std::string& flag,
                                                      const std::set<std::string>& locked);

/// `all` without the flags of a plan that change nothing: the rest gives the same plan.
[[nodiscard]] Settings without_defaults(const PlanRequest& request, Settings all);

/// The flag an error is about: "tp" of "--tp" or of "--tp: FILE at ..."; "" where none is named.
[[nodiscard]] std::string flag_of(const Error& error);

}  // namespace echelon::cli
