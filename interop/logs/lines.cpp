#include "interop/logs/lines.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/files.hpp"

namespace echelon {

namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr char kEscape = '\x1b';

}  // namespace

LogLines::LogLines(std::string_view text, std::string_view where)
    : where_(where), rest_(text), at_end_(true) {}

LogLines::LogLines(LogLines&& other) noexcept
    : where_(std::move(other.where_)),
      file_(std::exchange(other.file_, -1)),
      buffer_(std::move(other.buffer_)),
      rest_(other.rest_),
      at_end_(other.at_end_),
      number_(other.number_),
      consumed_(other.consumed_),
      total_(other.total_),
      error_(std::move(other.error_)) {}

LogLines::~LogLines() {
  if (file_ >= 0) ::close(file_);
}

Result<LogLines> LogLines::open(const std::string& path) {
  LogLines lines;
  lines.where_ = path;
  lines.file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (lines.file_ < 0 || ::fstat(lines.file_, &info) != 0) {
    return environment_error(path, "cannot be read: " + reason_of(errno), "name a training log");
  }
  if (S_ISDIR(info.st_mode)) {
    return input_error(path, "is a directory, not a file", "a training log",
                       "name the log inside it");
  }
  if (S_ISREG(info.st_mode) && info.st_size > kMostLogBytes) {
    return input_error(path, "the file is longer than 16 GiB", "a log of at most 16 GiB",
                       "cut out some hundred steps and the lines before them");
  }
  return lines;
}

bool LogLines::fill() {
  if (at_end_ || error_) return false;
  const std::size_t kept = rest_.size();
  if (kept > 0) std::memmove(buffer_.data(), rest_.data(), kept);
  if (buffer_.size() < kept + kBlockBytes) buffer_.resize(kept + kBlockBytes);
  ssize_t got = 0;
  do {
    got = ::read(file_, buffer_.data() + kept, kBlockBytes);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    error_ = environment_error(where_, "cannot be read: " + reason_of(errno));
    return false;
  }
  at_end_ = got == 0;
  total_ += got;
  if (total_ > kMostLogBytes) {
    error_ = input_error(where_, "more than 16 GiB", "a log of at most 16 GiB");
    return false;
  }
  rest_ = {buffer_.data(), kept + static_cast<std::size_t>(got)};
  return got > 0;
}

std::string_view LogLines::without_escapes(std::string_view line) {
  if (line.find(kEscape) == std::string_view::npos) return line;
  scratch_.clear();
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != kEscape) {
      scratch_ += line[i];
      continue;
    }
    if (i + 1 >= line.size() || line[i + 1] != '[') continue;
    for (++i; i + 1 < line.size() && !(line[i + 1] >= '@' && line[i + 1] <= '~');) ++i;
    ++i;  // the letter that ends the escape
  }
  return scratch_;
}

bool LogLines::next(LogLine& line) {
  if (error_) return false;
  const auto ends_line = [](char c) { return c == '\n' || c == '\r'; };
  std::size_t size = 0;
  while (true) {
    const auto* const begin = rest_.data();
    size = static_cast<std::size_t>(std::find_if(begin + size, begin + rest_.size(), ends_line) -
                                    begin);
    if (size < rest_.size() || size > kMostLineBytes || !fill()) break;
  }
  if (error_ || rest_.empty()) return false;
  if (size > kMostLineBytes) {
    error_ = input_error(fmt::format("{}, line {}", where_, number_), "a line of more than 4 MiB",
                         "the text that a training program printed", "is this a binary file?");
    return false;
  }
  line = {number_, without_escapes(rest_.substr(0, size))};
  if (size < rest_.size() && rest_[size] == '\n') ++number_;
  const std::size_t used = std::min(size + 1, rest_.size());
  rest_.remove_prefix(used);
  consumed_ += static_cast<std::int64_t>(used);
  return true;
}

}  // namespace echelon
