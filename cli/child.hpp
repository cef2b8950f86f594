// A program of ours that runs beside `plan` and tells it lines; it never outlives us.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"

namespace echelon::cli {

/// How it ended: its exit code, or the signal that killed it.
struct Ended {
  int exit_code = 0;
  int signal = 0;
};

/// Runs `words` (a path and its arguments) in a process group of its own; whatever it writes to
/// descriptor kEvents is handed over line by line, its standard error is ours. SIGINT and SIGTERM
/// that reach us are passed on to it once; it is killed when we die. Environment error: the program
/// is missing or cannot be started.
inline constexpr int kEvents = 3;
[[nodiscard]] Result<Ended> run_child(const std::vector<std::string>& words,
                                      const std::function<void(std::string_view line)>& heard);

/// The folder this program lies in.
[[nodiscard]] std::string own_folder();

}  // namespace echelon::cli
