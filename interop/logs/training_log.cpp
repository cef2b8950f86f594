#include "interop/logs/training_log.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "interop/logs/lines.hpp"
#include "interop/logs/log_builder.hpp"

namespace echelon {

namespace {

/// Within it of a first mark, marks of a more special format are looked for.
constexpr std::int64_t kRecognitionBytes = std::int64_t{4} << 20;
constexpr std::int64_t kProbeBytes = std::int64_t{64} << 20;

/// The format of the marks among the lines; reads on a little, for a more special one.
const LogFormat* recognized(LogLines& lines, std::int64_t most_bytes) {
  const std::span<const LogFormat> formats = log_formats();
  std::size_t best = formats.size();
  std::int64_t until = most_bytes;
  LogLine line;
  while (best > 0 && lines.next(line)) {
    for (std::size_t i = 0; i < best; ++i) {
      if (has_any(line.text, formats[i].marks)) {
        until = std::min(until, lines.position() + kRecognitionBytes);
        best = i;
      }
    }
    if (lines.position() > until) break;
  }
  return best == formats.size() ? nullptr : &formats[best];
}

Error not_a_log(const std::string& where) {
  std::string names;
  for (const LogFormat& format : log_formats()) {
    names += (names.empty() ? "" : ", ") + std::string(format.title);
  }
  return input_error(where, "no line with a training step",
                     "the log of " + names + ", with the lines that it prints per step",
                     "some frameworks print no step times unless asked: log_interval of "
                     "Megatron-LM, steps_per_print of DeepSpeed");
}

Result<TrainingLog> read_as(const LogFormat& format, LogLines& lines, const std::string& where) {
  LogBuilder builder(format, where);
  LogLine line;
  while (lines.next(line)) builder.take(line);
  if (lines.error()) return *lines.error();
  TrainingLog log = builder.finish();
  if (log.steps.empty()) {
    return input_error(where,
                       fmt::format("lines of {} without a step that can be read", format.title),
                       fmt::format("lines with '{}' (# is a number)", format.step.pattern));
  }
  return log;
}

}  // namespace

const LoggedValue* TrainingLog::find(std::string_view name) const {
  const auto found = std::ranges::find(values, name, &LoggedValue::name);
  return found == values.end() ? nullptr : &*found;
}

Result<TrainingLog> read_training_log(const std::string& path) {
  Result<LogLines> probe = LogLines::open(path);
  if (!probe) return probe.error();
  const LogFormat* format = recognized(*probe, kMostLogBytes);
  if (probe->error()) return *probe->error();
  if (format == nullptr) return not_a_log(path);
  Result<LogLines> lines = LogLines::open(path);
  if (!lines) return lines.error();
  return read_as(*format, *lines, path);
}

Result<TrainingLog> parse_training_log(std::string_view text, const std::string& where) {
  LogLines probe(text, where);
  const LogFormat* format = recognized(probe, kMostLogBytes);
  if (probe.error()) return *probe.error();
  if (format == nullptr) return not_a_log(where);
  LogLines lines(text, where);
  return read_as(*format, lines, where);
}

const LogFormat* training_log_format(const std::string& path) {
  Result<LogLines> probe = LogLines::open(path);
  if (!probe) return nullptr;
  const LogFormat* format = recognized(*probe, kProbeBytes);
  return probe->error() ? nullptr : format;
}

}  // namespace echelon
