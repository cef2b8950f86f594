// Every command in one row: its name, what it does, the flags it takes, and its help. Parsing,
// help, man page and completion walk this table and that of flags.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/table.hpp"
#include "core/base/result.hpp"

namespace echelon::cli {

struct CommandContext;
struct CommandResult;
using CommandFunction = Result<CommandResult>(const CommandContext&);

struct Command {
  std::string_view name;  ///< "search", "topo show"
  CommandFunction* function = nullptr;
  std::string_view positional;  ///< as usage shows it: "A B"
  std::size_t least_words = 0;  ///< number of positional arguments
  std::size_t most_words = 0;
  unsigned groups = 0;  ///< flags it takes besides kOutput
  std::string_view summary;
  std::string_view details;
  std::vector<std::string_view> examples;
  bool reports = true;  ///< false: its output is itself a text for others, without --json
};

[[nodiscard]] std::span<const Command> commands();
/// Null if there is none.
[[nodiscard]] const Command* find_command(std::string_view name);
[[nodiscard]] bool takes(const Command& command, const Flag& flag);
/// All first words a command line may start with: "search", "topo", ...
[[nodiscard]] std::vector<std::string> first_words();

}  // namespace echelon::cli
