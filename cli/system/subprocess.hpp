// A program that `plan` starts and reads lines from; it never outlives `plan`.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace echelon::cli {

/// The descriptor a child writes its lines to; one that mpirun starts has only its standard output.
inline constexpr int kEvents = 3;
inline constexpr int kEventsOfProcesses = 1;

struct Subprocess {
  std::vector<std::string> words;  ///< a path and its arguments
  int events = kEvents;
  /// Sent only to the child instead of the first signal that reaches us; 0: that signal itself.
  int gently = 0;
};

/// Added to a signal it is the exit code of a process that the signal killed, as in shells.
inline constexpr int kSignals = 128;

/// How it ended: its exit code, and the signal that killed it, if one did.
struct ExitStatus {
  int exit_code = 0;
  int signal = 0;
  bool interrupted = false;  ///< a signal of ours was passed on
};

/// Runs a child in a process group of its own; what it writes to its descriptor `events` is
/// handed over line by line, its standard error is ours. SIGINT, SIGTERM and SIGHUP that reach us
/// are passed on to its group, those within a quarter of a second as one; it gets SIGTERM when we
/// die. Environment error: the program is
/// missing or cannot be started.
[[nodiscard]] Result<ExitStatus> run_subprocess(
    const Subprocess& child, const std::function<void(std::string_view line)>& heard);

/// The words under mpirun, as so many processes. mpirun ends at once on SIGINT and SIGTERM and
/// forwards SIGUSR1; it closes descriptors, and forwards the output of the first process. Error:
/// mpirun is missing.
[[nodiscard]] Result<Subprocess> under_mpirun(const std::vector<std::string>& words, int processes);

/// The folder this program lies in.
[[nodiscard]] std::string own_folder();
/// Full path of a program, or "".
[[nodiscard]] std::string in_path(const char* program);

}  // namespace echelon::cli
