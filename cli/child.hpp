// A program of ours that runs beside `plan` and tells it lines; it never outlives us.
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

struct Child {
  std::vector<std::string> words;  ///< a path and its arguments
  int events = kEvents;
  /// Sent to the child alone instead of the first signal that reaches us; 0: that signal itself.
  int gently = 0;
};

/// How it ended: its exit code, or the signal that killed it.
struct Ended {
  int exit_code = 0;
  int signal = 0;
  bool interrupted = false;  ///< a signal of ours was passed on
};

/// Runs a child in a process group of its own; whatever it writes to its descriptor `events` is
/// handed over line by line, its standard error is ours. SIGINT, SIGTERM and SIGHUP that reach us
/// are passed on to its group, those within a quarter of a second as one; it gets SIGTERM when we
/// die. Environment error: the program is
/// missing or cannot be started.
[[nodiscard]] Result<Ended> run_child(const Child& child,
                                      const std::function<void(std::string_view line)>& heard);

/// The words under mpirun, as so many processes. mpirun takes SIGINT and SIGTERM as the wish to end
/// at once and passes SIGUSR1 on; it closes descriptors, and forwards what the first process
/// prints. Error: there is no mpirun.
[[nodiscard]] Result<Child> under_mpirun(const std::vector<std::string>& words, int processes);

/// The folder this program lies in.
[[nodiscard]] std::string own_folder();
/// Full path of a program, or "".
[[nodiscard]] std::string in_path(const char* program);

}  // namespace echelon::cli
