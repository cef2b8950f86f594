// A shell script as commands, with its variables, arrays and sums replaced. Nothing is executed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace echelon {

/// What stands for a variable in ShellWord::unresolved where a command's output does.
inline constexpr std::string_view kCommandOutput = "a command's output";

struct ShellWord {
  std::string text;
  int line = 1;
  /// Name of a variable in it that the script does not set, or sets under a condition.
  std::string unresolved{};
  bool quoted = false;  ///< some of it; a comment or an operator is not
  /// Of a quoted word its text with marks where such variables stand: parse_shell reads them again.
  std::string marked{};
};

struct ShellScript {
  std::vector<std::vector<ShellWord>> commands;       ///< without the assignments before their name
  std::vector<std::vector<ShellWord>> batch_options;  ///< of lines that begin with #SBATCH
};

/// Errors have the line: a quote or a list that is not closed, values that grow without bound.
[[nodiscard]] Result<ShellScript> parse_shell(std::string_view text, std::string_view where);

/// Value of an arithmetic expression of +, -, *, /, % and parentheses over numbers; nothing for
/// anything else.
[[nodiscard]] std::string arithmetic_value(std::string_view expression);

}  // namespace echelon
