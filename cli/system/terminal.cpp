#include "cli/system/terminal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "core/base/text.hpp"

namespace echelon::cli {

namespace {

constexpr int kPipedWidth = 100;
constexpr int kNarrowest = 40;
constexpr int kWidest = 160;

bool g_output_closed = false;  // found closed at the start, before a stand-in was opened

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int width_of_terminal() {
  const std::string_view columns = variable("COLUMNS");
  int width = 0;
  const auto [end, error] = std::from_chars(columns.data(), columns.data() + columns.size(), width);
  const bool set = error == std::errc() && end == columns.data() + columns.size() && width > 0;
  if (!set) {
    width = kPipedWidth;
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) width = size.ws_col;
  }
  return std::clamp(width, kNarrowest, kWidest);
}

bool locale_is_utf8() {
  std::string name;
  for (const char* key : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (name.empty()) name = variable(key);
  }
  name = lower_case(name);
  return name.find("utf-8") != std::string::npos || name.find("utf8") != std::string::npos;
}

bool wants_color(std::string_view when) {
  if (when == "always") return true;
  if (when == "never" || !variable("NO_COLOR").empty()) return false;
  const std::string_view force = variable("CLICOLOR_FORCE");
  if (!force.empty() && force != "0") return true;
  return ::isatty(STDOUT_FILENO) == 1 && variable("TERM") != "dumb";
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

void secure_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    if (descriptor == STDOUT_FILENO) g_output_closed = true;
    // The lowest free descriptor is this one. Read-only: a stray write to it must fail.
    if (::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDWR) < 0) std::_Exit(3);
  }
  std::signal(SIGPIPE, SIG_IGN);
}

Result<TextStyle> style_of_terminal(std::string_view when, std::string_view where) {
  if (when != "auto" && when != "always" && when != "never") {
    return input_error(std::string(where), in_quotes(when), "auto, always or never");
  }
  return TextStyle{width_of_terminal(), wants_color(when), locale_is_utf8()};
}

Status write_output(std::string_view text) {
  if (text.empty()) return Done{};
  if (g_output_closed) return environment_error("standard output", "it is closed");
  if (write_all(STDOUT_FILENO, text) || errno == EPIPE) return Done{};
  return environment_error("standard output",
                           std::string("cannot be written: ") + std::strerror(errno));
}

void complain(std::string_view message) {
  std::string line = "plan: ";
  for (const char c : message) line += c == '\n' ? ' ' : c;
  write_all(STDERR_FILENO, line + "\n");
}

ProgressLine::ProgressLine(std::string_view what, bool quiet)
    : what_(what),
      enabled_(!quiet && ::isatty(STDERR_FILENO) == 1 && variable("TERM") != "dumb"),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

ProgressLine::~ProgressLine() {
  if (shown_) write_all(STDERR_FILENO, "\r\x1b[K");
}

void ProgressLine::show(double share) {
  using namespace std::chrono_literals;
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - start_ < 500ms || now - last_ < 100ms) return;
  last_ = now;
  shown_ = true;
  write_all(STDERR_FILENO, fmt::format("\r{} {:3.0f} %", what_, 100 * std::clamp(share, 0.0, 1.0)));
}

void ProgressLine::announce() {
  if (!enabled_) return;
  shown_ = true;
  write_all(STDERR_FILENO, "\r" + what_ + " ...");
}

double ProgressLine::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

RunProgress::RunProgress(bool enabled)
    : enabled_(enabled),
      terminal_(::isatty(STDERR_FILENO) == 1 && variable("TERM") != "dumb"),
      last_(std::chrono::steady_clock::now() - std::chrono::hours(1)) {}

void RunProgress::show(const std::string& line, bool last) {
  using namespace std::chrono_literals;
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (terminal_) {
    if (!last && now - last_ < 100ms) return;
    shown_ = true;
    write_all(STDERR_FILENO, "\r\x1b[K" + line);
  } else {
    if (!last && now - last_ < 10s) return;
    write_all(STDERR_FILENO, line + "\n");
  }
  last_ = now;
}

void RunProgress::print(const std::string& line) {
  if (!enabled_) return;
  wipe();
  write_all(STDERR_FILENO, line + "\n");
}

void RunProgress::wipe() {
  if (shown_) write_all(STDERR_FILENO, "\r\x1b[K");
  shown_ = false;
}

}  // namespace echelon::cli
