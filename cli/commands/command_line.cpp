#include "cli/commands/command_line.hpp"

#include <fmt/format.h>

#include "cli/commands/command_table.hpp"
#include "cli/flags/values.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

std::string command_of(std::string_view command_name, const Settings& settings) {
  std::string out = command_name == "search" ? "plan" : "plan " + std::string(command_name);
  const Command* command = find_command(command_name);
  for (const Flag& flag : flags()) {  // in the order help lists them
    const Setting* setting = settings.find(flag.name);
    const bool shown = (flag.groups & kOutput) == 0 && command != nullptr && takes(*command, flag);
    if (setting == nullptr || !shown) continue;
    if (!flag.value.empty()) {
      out += fmt::format(" --{} {}", flag.name, shell_quoted(setting->value));
      continue;
    }
    const Result<bool> on = parse_switch(*setting);
    if (on && (*on || flag.negatable)) out += fmt::format(" --{}{}", *on ? "" : "no-", flag.name);
  }
  return out;
}

}  // namespace echelon::cli
