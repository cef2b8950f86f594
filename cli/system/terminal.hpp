// Output: terminal capabilities, complete writes or an error, progress lines.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "report/terminal_style.hpp"

namespace echelon::cli {

/// Makes sure that descriptors 0-2 are open, so that no file we open becomes standard output by
/// accident, and that a closed pipe does not kill us. Call first.
void secure_standard_streams();

/// Width of the terminal (or COLUMNS; 100 where output is no terminal); colour by `when` (auto,
/// always, never), NO_COLOR, CLICOLOR_FORCE and TERM; UTF-8 by the locale variables.
[[nodiscard]] Result<TextStyle> style_of_terminal(std::string_view when, std::string_view where);

/// Writes all of `text` to standard output. A closed pipe is not an error. Environment error for
/// a full disk or a closed descriptor.
[[nodiscard]] Status write_output(std::string_view text);
/// One line to standard error, with the program's name before it.
void complain(std::string_view message);

/// "searching  42 %" on standard error: only on a terminal, only after half a second, wiped at the
/// end.
class ProgressLine {
 public:
  ProgressLine(std::string_view what, bool quiet);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();
  void show(double share);
  /// For work without a known share: the line at once, without a number.
  void announce();
  [[nodiscard]] double seconds() const;

 private:
  std::string what_;
  bool enabled_ = false;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

/// Lines of a run on standard error: on a terminal each replaces the one before; elsewhere those
/// that are at least ten seconds apart, and the last.
class RunProgress {
 public:
  explicit RunProgress(bool enabled);
  void show(const std::string& line, bool last);
  /// A line that stays.
  void print(const std::string& line);
  void wipe();

 private:
  bool enabled_ = false;
  bool terminal_ = false;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace echelon::cli
