// Session files: the query of the window.
#pragma once

#include <string>
#include <string_view>

#include "gui/session/query.hpp"

namespace echelon::gui {

/// JSON, the same bytes for the same query:
///   { "format": "echelon-session", "schema": 2, "request": { flag: text }, "plan": { flag: text
///   },
///     "locked": [flag], "follows_best": bool }
[[nodiscard]] std::string session_to_json(const Query& query);
/// Errors: not JSON, not a session, another schema, an unknown or misplaced key or flag, a value
/// that is not a string, a lock on a flag that the plan lacks. The values themselves are checked
/// when the query is priced. Files of schema 1
/// and both spellings of renamed flags are accepted.
[[nodiscard]] Result<Query> parse_session(std::string_view json, std::string_view where);
[[nodiscard]] Result<Query> read_session(const std::string& path);

/// Errors with line and column: an unreadable file, or invalid JSON.
[[nodiscard]] Status check_json(const std::string& path);

/// Kinds of files the window opens.
enum class FileKind { session, plan, run_report, other };
/// By the value of "format"; an unreadable file is `other`, so that its reader reports the error.
[[nodiscard]] FileKind kind_of(const std::string& path);

/// The query of a plan file, its plan unlocked. The model is named by the catalog if that has it,
/// else by the path of the file.
[[nodiscard]] Result<Query> query_of_plan_file(const std::string& path);
/// The query of a session or plan file, with values overridden by the flags `changes`.
[[nodiscard]] Result<Query> query_of_file(const std::string& path, const cli::Settings& changes);

}  // namespace echelon::gui
