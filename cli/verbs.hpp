// What each verb does. A verb returns its whole output; only run.cpp prints.
#pragma once

#include <string>
#include <string_view>

#include "cli/arguments.hpp"
#include "cli/settings.hpp"
#include "core/base/result.hpp"
#include "report/terminal_style.hpp"

namespace echelon::cli {

struct Invocation {
  Arguments arguments;
  Settings settings;
  TextStyle style;
  bool json = false;
  bool quiet = false;
};

struct Outcome {
  std::string output;
  int exit_code = 0;  ///< 0, or 1 for a legitimate "no"
};

inline constexpr int kDone = 0;
inline constexpr int kNo = 1;
inline constexpr int kWrongInput = 2;
inline constexpr int kEnvironment = 3;
inline constexpr int kOutOfMemory = 5;  ///< of a run; the others are plan-run's own
inline constexpr int kPeerLost = 7;
inline constexpr int kInterrupted = 130;

[[nodiscard]] Result<Outcome> search_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> predict_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> explain_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> compare_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> validate_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> fit_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> run_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> calibrate_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> gui_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> topo_list_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> topo_show_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> topo_check_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> topo_import_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> topo_collectives_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> models_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> doctor_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> completion_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> man_verb(const Invocation& call);
[[nodiscard]] Result<Outcome> help_verb(const Invocation& call);

/// `plan fit` of run reports.
[[nodiscard]] Result<Outcome> learn_verb(const Invocation& call);
/// Whether a file is one, or at least JSON: tables of runs never are.
[[nodiscard]] bool is_run_report(const std::string& path);

/// Writes a second output to the file a flag names; nothing without the flag.
[[nodiscard]] Status write_named(const Invocation& call, std::string_view flag,
                                 std::string_view text);

/// The whole program; returns its exit code.
[[nodiscard]] int run(int argc, const char* const* argv);

}  // namespace echelon::cli
