// Input and result of a command. It returns its whole output; only app.cpp prints.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/arguments.hpp"
#include "cli/flags/settings.hpp"
#include "core/base/result.hpp"
#include "report/terminal_style.hpp"

namespace echelon::cli {

struct CommandContext {
  Arguments arguments;
  Settings settings;
  TextStyle style;
  bool json = false;
  bool quiet = false;
};

struct CommandResult {
  std::string output;
  int exit_code = 0;  ///< 0, or 1 for a legitimate "no"
  /// Why a file that a flag names could not be written after all; reported below the output.
  std::optional<Error> not_written{};

  /// Remembers the first failure.
  void note(const Status& written) {
    if (!written && !not_written) not_written = written.error();
  }
};

inline constexpr int kDone = 0;
inline constexpr int kNo = 1;
inline constexpr int kWrongInput = 2;
inline constexpr int kEnvironment = 3;
inline constexpr int kOutOfMemory = 5;  ///< of a run; the others are plan-run's own
inline constexpr int kPeerLost = 7;
inline constexpr int kInterrupted = 130;

/// Checks that the files which --output, --predictions, --plot and --page name can be written,
/// before the work whose result goes there.
[[nodiscard]] Status check_outputs(const CommandContext& context);
/// What `plan export` can write: formats, jobs of launchers, trace.
[[nodiscard]] std::vector<std::string> export_names();
/// An error of the planner: where flags alone state the request, with the origins of the values
/// that it names (naming_origins).
[[nodiscard]] Error of_request(const CommandContext& context, Error error);
/// Writes a second output to the file that a flag names; nothing without the flag.
[[nodiscard]] Status write_named(const CommandContext& context, std::string_view flag,
                                 std::string_view text);

}  // namespace echelon::cli
