// Help, from the tables of flags and commands.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands/command_table.hpp"
#include "cli/flags/table.hpp"
#include "report/terminal_style.hpp"

namespace echelon::cli {

/// `plan --help`: commands, the most used flags, examples.
[[nodiscard]] std::string overview(const TextStyle& style);
/// `plan COMMAND --help`: usage, what it does, its flags, examples.
[[nodiscard]] std::string command_help(const Command& command, const TextStyle& style);
/// "plan predict [PLAN.json] [flags]".
[[nodiscard]] std::string usage_of(const Command& command);
/// "-o, --output FILE", "--[no-]flash-attention".
[[nodiscard]] std::string spelling_of(const Flag& flag);

struct Section {
  unsigned groups;
  std::string_view title;
};
/// Headings under which flags are listed, in order.
[[nodiscard]] std::span<const Section> sections();
/// The heading a flag is listed under for this command.
[[nodiscard]] bool listed_under(const Command& command, const Flag& flag, const Section& section);

/// The meaning of each exit code, one line each.
[[nodiscard]] std::vector<std::pair<std::string_view, std::string_view>> exit_codes();
/// Where settings come from, in one sentence.
[[nodiscard]] std::string precedence();

}  // namespace echelon::cli
