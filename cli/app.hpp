// The program `plan`.
#pragma once

namespace echelon::cli {

/// Parses the arguments, runs one command and prints its output; returns the exit code.
[[nodiscard]] int run(int argc, const char* const* argv);

}  // namespace echelon::cli
