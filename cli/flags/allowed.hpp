// --allow and --forbid: axes and techniques that a search leaves out.
#pragma once

#include <string>

#include "cli/flags/settings.hpp"
#include "planner/space/request.hpp"

namespace echelon::cli {

/// `settings` with every axis that --allow leaves out, and everything that --forbid names, set to
/// the value that does not use it: --tp 1, --zero 0, --recompute none. Errors: an unknown name
/// (nearest offered); a flag that sets the same to another value.
[[nodiscard]] Result<Settings> with_restrictions(Settings settings);

/// What --allow takes, the degrees of a plan; and --forbid, techniques too. Separated by blanks.
[[nodiscard]] const std::string& names_to_allow();
[[nodiscard]] const std::string& names_to_forbid();

/// constraints_of() the settings after restrictions.
[[nodiscard]] Result<PlanConstraints> search_constraints_of(const Settings& settings);
/// Whether --forbid names recompute-modules, which no single value of a flag leaves out.
[[nodiscard]] bool forbids_module_sets(const Settings& settings);

}  // namespace echelon::cli
