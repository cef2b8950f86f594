// Session files: the query of the window, and the plan pinned next to it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gui/session/query.hpp"

namespace echelon::gui {

struct Session {
  Query query;
  std::optional<Query> pinned;  ///< the plan pinned for comparison and its request; locks nothing
  bool operator==(const Session&) const = default;
};

/// JSON, the same bytes for the same session:
///   { "format": "echelon-session", "schema": 3, "request": { flag: text }, "plan": { flag: text },
///     "locked": [flag], "follows_best": bool, "pinned": null | { "request": ..., "plan": ... } }
[[nodiscard]] std::string session_to_json(const Session& session);
/// Errors: not JSON, not a session, another schema, an unknown or misplaced key or flag, a value
/// that is not a string, a lock on a flag that the plan lacks. The values themselves are checked
/// when the query is priced. Files of schemas 1 and 2, which pin nothing, and both spellings of
/// renamed flags are accepted.
[[nodiscard]] Result<Session> parse_session(std::string_view json, std::string_view where);
[[nodiscard]] Result<Session> read_session(const std::string& path);

/// Errors with line and column: an unreadable file, or invalid JSON.
[[nodiscard]] Status check_json(const std::string& path);

/// Kinds of files the window opens.
enum class FileKind { session, plan, run_report, other };
/// By the value of "format"; an unreadable file is `other`, so that its reader reports the error.
[[nodiscard]] FileKind kind_of(const std::string& path);

/// The query of a plan file, its plan unlocked. The model is named by the catalog if that has it,
/// else by the path of the file.
[[nodiscard]] Result<Query> query_of_plan_file(const std::string& path);
/// A session or plan file; the flags `changes` override values of its query.
[[nodiscard]] Result<Session> session_of_file(const std::string& path,
                                              const cli::Settings& changes);

}  // namespace echelon::gui
