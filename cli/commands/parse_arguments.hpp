// From the words of a command line to a command, its words and its flags.
#pragma once

#include "cli/flags/arguments.hpp"
#include "core/base/result.hpp"

namespace echelon::cli {

/// Errors: unknown flag or command (nearest offered), missing value, flag given twice, a switch and
/// its opposite, stray or missing words, a flag that this command or this version does not take.
[[nodiscard]] Result<Arguments> parse_arguments(int argc, const char* const* argv);

}  // namespace echelon::cli
