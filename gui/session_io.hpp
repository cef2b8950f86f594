// Sessions: the window's question and plan in a file.
#pragma once

#include <string>
#include <string_view>

#include "gui/sheet.hpp"

namespace echelon::gui {

/// JSON, the same bytes for the same sheet:
///   { "format": "echelon-session", "schema": 1, "question": { flag: text }, "plan": { flag: text
///   },
///     "locked": [flag], "follows_best": bool }
[[nodiscard]] std::string session_to_json(const Sheet& sheet);
/// Errors: not JSON, not a session, another schema, a key or flag that is unknown or at the wrong
/// place, a value that is no text, a lock on what the plan has not. What the values mean is for
/// pricing to say.
[[nodiscard]] Result<Sheet> parse_session(std::string_view json, std::string_view where);
[[nodiscard]] Result<Sheet> read_session(const std::string& path);

/// Errors, with line and column: what cannot be read, or is not JSON.
[[nodiscard]] Status check_json(const std::string& path);

/// What a file of ours is.
enum class FileKind { session, plan, run_report, other };
/// From its first keys; `other` too for what cannot be read, so that the reader says why.
[[nodiscard]] FileKind kind_of(const std::string& path);

/// The sheet of a plan file: its question, its plan unlocked. The model is named by the catalog
/// where it is there, else by the file itself.
[[nodiscard]] Result<Sheet> sheet_of_plan_file(const std::string& path);
/// Either of them, with single values changed by `changes` (flags).
[[nodiscard]] Result<Sheet> sheet_of_file(const std::string& path, const cli::Settings& changes);

}  // namespace echelon::gui
