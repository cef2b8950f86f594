// Values of flags: text becomes numbers, switches, lists and times; errors name the setting.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/settings.hpp"
#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon::cli {

/// "16,16" as whole numbers of at least `least`.
[[nodiscard]] Result<std::vector<int>> parse_list(const Setting& setting, int least);
/// "true", "false", "yes", "no", "1", "0".
[[nodiscard]] Result<bool> parse_switch(const Setting& setting);
/// "90s", "10min", "6338h", "264d".
[[nodiscard]] Result<Seconds> parse_duration(const Setting& setting);
/// A file the user named must exist: its absence is wrong input, not a broken machine.
[[nodiscard]] Status check_exists(const std::string& path, std::string_view where,
                                  std::string_view what);
/// A parser's error, reported at the place the value came from.
[[nodiscard]] Error at(const Setting& setting, Error error);

}  // namespace echelon::cli
