// The command line, taken apart but not yet understood: a command, words, and flags as text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/table.hpp"
#include "core/base/result.hpp"

namespace echelon::cli {

struct Command;

struct Arguments {
  const Command* command = nullptr;
  bool command_given = false;                             ///< false: `search` by default
  std::vector<std::string> words;                         ///< positionals after the command
  std::map<std::string, std::string, std::less<>> flags;  ///< switches hold "true" or "false"

  [[nodiscard]] bool has(std::string_view flag) const { return flags.find(flag) != flags.end(); }
  [[nodiscard]] std::optional<std::string> value(std::string_view flag) const;
};

/// Errors: unknown flag or command (nearest offered), missing value, flag given twice, a switch and
/// its opposite, stray or missing words, a flag that this command or this version does not take.
[[nodiscard]] Result<Arguments> parse_arguments(int argc, const char* const* argv);

}  // namespace echelon::cli
