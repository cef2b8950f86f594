// The lines of a log, one at a time: a log of any length takes a few MiB of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace echelon {

/// The longest log that is read, and the longest line: argument dumps on one line have some KiB.
inline constexpr std::int64_t kMostLogBytes = std::int64_t{16} << 30;
inline constexpr std::size_t kMostLineBytes = std::size_t{4} << 20;

/// One line, without its end, colours (ESC [ ... m) and other terminal escapes. A carriage return
/// ends a line too (progress bars), but does not count: `number` is the line an editor shows.
struct LogLine {
  std::int64_t number = 0;
  std::string_view text;  ///< until the next call of next()
};

class LogLines {
 public:
  /// Errors: missing, a directory, no permission, longer than kMostLogBytes.
  [[nodiscard]] static Result<LogLines> open(const std::string& path);
  /// Of a text in memory, which outlives this; `where` names it in errors.
  LogLines(std::string_view text, std::string_view where);
  LogLines(LogLines&& other) noexcept;
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  LogLines& operator=(LogLines&&) = delete;
  ~LogLines();

  /// False at the end, and after an error.
  [[nodiscard]] bool next(LogLine& line);
  /// Bytes consumed so far.
  [[nodiscard]] std::int64_t position() const { return consumed_; }
  /// A line longer than kMostLineBytes, more than kMostLogBytes, or a read error.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  LogLines() = default;
  [[nodiscard]] bool fill();
  [[nodiscard]] std::string_view without_escapes(std::string_view line);

  std::string where_;
  int file_ = -1;
  std::vector<char> buffer_;
  std::string_view rest_;  ///< not yet returned
  bool at_end_ = false;
  std::int64_t number_ = 1;
  std::int64_t consumed_ = 0;
  std::int64_t total_ = 0;
  std::string scratch_;
  std::optional<Error> error_;
};

}  // namespace echelon
