// The parsed command line, its values not yet read: a command, words, and flags as text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon::cli {

struct Command;  // cli/commands/command_table.hpp

struct Arguments {
  const Command* command = nullptr;
  bool command_given = false;                             ///< false: `search` by default
  std::vector<std::string> words;                         ///< positionals after the command
  std::map<std::string, std::string, std::less<>> flags;  ///< switches hold "true" or "false"

  [[nodiscard]] bool has(std::string_view flag) const { return flags.find(flag) != flags.end(); }
  [[nodiscard]] std::optional<std::string> value(std::string_view flag) const {
    const auto at = flags.find(flag);
    return at == flags.end() ? std::nullopt : std::optional(at->second);
  }
};

}  // namespace echelon::cli
