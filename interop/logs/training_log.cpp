#include "interop/logs/training_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"
#include "interop/logs/arguments.hpp"
#include "interop/logs/lines.hpp"
#include "interop/logs/needles.hpp"

namespace echelon {

namespace {

constexpr std::size_t kMostSteps = 500'000;
constexpr std::size_t kMostValues = 1000;
constexpr std::size_t kMostRanks = 100'000;
constexpr std::size_t kLongestArgumentLine = std::size_t{1} << 20;
/// Within it of a first mark, marks of a more special format are looked for.
constexpr std::int64_t kRecognitionBytes = std::int64_t{4} << 20;
constexpr std::int64_t kProbeBytes = std::int64_t{64} << 20;
/// Ranks print one step within this time of each other.
constexpr double kSameStepSeconds = 60;
constexpr int kVersionLines = 5000;
constexpr double kLargestStep = 1e15;

constexpr std::string_view kRetries = "CUDA memory allocation retries";
constexpr std::array<std::string_view, 4> kGenerates = {"'completions/mean_length'",
                                                        "'completion_length'", "rollout_time",
                                                        "'sampling/"};

bool has_any(std::string_view line, std::span<const std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    return find_words(line, word) != std::string_view::npos;
  });
}

/// The words of a pattern before its first number.
std::string_view words_before_number(std::string_view pattern) {
  const std::string_view words = pattern.substr(0, pattern.find('#'));
  const std::size_t begin = std::min(words.find_first_not_of(" ,|:"), words.size());
  return words.substr(begin, words.find_last_not_of(" :=|(") + 1 - begin);
}

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

/// What a line has that is read by itself, not as the step that it begins.
Needles needles_of(const LogFormat& format) {
  Needles needles;
  for (const LogField& field : format.other_fields) needles.add(longest_literal(field.pattern));
  for (const ValueField& field : format.values) needles.add(longest_literal(field.pattern));
  for (const TextField& field : format.texts) needles.add(field.before);
  for (const std::string_view event : format.events) needles.add(event);
  for (const std::string_view word : kGenerates) needles.add(word);
  needles.add(kRetries);
  if ((format.dumps & kDotted) != 0) needles.add(" ...");
  if ((format.dumps & kAssignments) != 0) needles.add("=");
  if ((format.dumps & kDictionary) != 0) needles.add("':"), needles.add("\":");
  if ((format.dumps & kYaml) != 0) needles.add(": ");
  if ((format.dumps & kTable) != 0) needles.add("|");
  if (format.fields_follow) needles.add("");
  return needles;
}

/// Builds a log, line by line.
class LogBuilder {
 public:
  LogBuilder(const LogFormat& format, std::string path) : needles_(needles_of(format)) {
    log_.path = std::move(path);
    log_.format = &format;
  }

  void take(const LogLine& line) {
    log_.lines = line.number;
    const LogFormat& format = *log_.format;
    const bool step_line = take_steps(line);
    if (line.number <= kVersionLines || (step_line && log_.steps_printed < 100)) {
      note_version(line.text);
    }
    const bool options =
        (format.dumps & kCommandLine) != 0 && find_words(line.text, "--") != std::string_view::npos;
    if (step_line || (!options && !needles_.any_in(line.text))) return;
    if (format.fields_follow && open_) take_fields(format.step_fields, line.text, line, *open_);
    for (const LogField& field : format.other_fields) take_other(field, line);
    if (has_any(line.text, format.events)) event_ = true;
    if (!log_.retries && find_words(line.text, kRetries) != std::string_view::npos) {
      log_.retries = LoggedRemark{line.number, printable(line.text, 120)};
    }
    if (!log_.generates && has_any(line.text, kGenerates)) {
      log_.generates = LoggedRemark{line.number, printable(line.text, 80)};
    }
    if (log_.values.size() < kMostValues && line.text.size() < kLongestArgumentLine) {
      take_values(line);
    }
  }

  TrainingLog finish() {
    close_step();
    return std::move(log_);
  }

 private:
  /// Begins a step for every step number on the line; ranks that print at once share a line.
  bool take_steps(const LogLine& line) {
    const LogFormat& format = *log_.format;
    auto found = find_pattern(line.text, format.step.pattern, format.suffixes);
    if (!found) return false;
    const auto marks = format.step_marks.empty() ? format.marks : format.step_marks;
    if (!format.fields_follow && !has_any(line.text, marks)) return false;
    while (found) {
      const auto next = find_pattern(line.text, format.step.pattern, format.suffixes, found->end);
      // A time stamp before the number belongs to the step.
      const std::size_t begin = begin_of_part_;
      const std::size_t end = next ? next->begin : line.text.size();
      begin_step(line, *found, line.text.substr(begin, end - begin));
      begin_of_part_ = end;
      found = next;
    }
    begin_of_part_ = 0;
    return true;
  }

  void begin_step(const LogLine& line, const PatternMatch& match, std::string_view part) {
    close_step();
    LoggedStep step;
    step.line = line.number;
    step.clock = time_stamp_of(part);
    for (std::size_t i = 0; i < match.count; ++i) {
      const LogCapture& capture = log_.format->step.captures[i];
      const double number = match.numbers[i];
      if (capture.quantity == LogQuantity::step) {
        if (number < 0 || number > kLargestStep) return;
        step.step = static_cast<std::int64_t>(number);
      } else if (capture.quantity == LogQuantity::total_steps) {
        const LoggedValue* total = log_.find("total_steps");
        if (total != nullptr && total->value != fmt::format("{}", number)) return;  // another bar
      } else if (capture.quantity == LogQuantity::elapsed) {
        step.clock = number;
      }
    }
    open_ = step;
    take_fields(log_.format->step_fields, part, line, *open_);
    if (!log_.format->fields_follow) close_step();
  }

  /// Keeps the open step unless another rank printed it before.
  void close_step() {
    if (!open_) return;
    LoggedStep step = *std::exchange(open_, std::nullopt);
    if (is_duplicate(step)) return;
    step.new_run = log_.steps_printed == 0 || step.step <= last_.step;
    step.event = std::exchange(event_, false);
    last_ = step;
    ++log_.steps_printed;
    if (!step.new_run && (log_.steps_printed - 1) % log_.stride != 0) return;
    if (log_.steps.size() == kMostSteps) thin();
    log_.steps.push_back(step);
  }

  /// Ranks print a step at about the same time; a restarted run repeats it later.
  [[nodiscard]] bool is_duplicate(const LoggedStep& step) const {
    if (log_.steps.empty() || step.step > last_.step) return false;
    const bool bar = log_.format->time == StepTime::clock;  // redrawn at the end of a step
    constexpr std::size_t kFarthest = 64;
    for (std::size_t back = 1; back <= std::min(log_.steps.size(), kFarthest); ++back) {
      const LoggedStep& known = log_.steps[log_.steps.size() - back];
      if (known.step == step.step) {
        if (bar) return step.clock >= known.clock;
        if (known.clock && step.clock) {
          return std::abs(*known.clock - *step.clock) < kSameStepSeconds;
        }
        return known.step == last_.step;
      }
      if (known.new_run) break;
    }
    return false;
  }

  void thin() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < log_.steps.size(); ++i) {
      if (i % 2 == 0 || log_.steps[i].new_run) log_.steps[kept++] = log_.steps[i];
    }
    log_.steps.resize(kept);
    log_.stride *= 2;
  }

  void take_fields(std::span<const LogField> fields, std::string_view text, const LogLine& line,
                   LoggedStep& step) {
    for (const LogField& field : fields) {
      const auto match = find_pattern(text, field.pattern, log_.format->suffixes);
      if (!match) continue;
      for (std::size_t i = 0; i < match->count; ++i) {
        const LogCapture& capture = field.captures[i];
        store(capture.quantity, match->numbers[i] * capture.scale, line, step);
      }
    }
  }

  void store(LogQuantity quantity, double value, const LogLine& line, LoggedStep& step) {
    switch (quantity) {
      case LogQuantity::seconds:
        step.seconds = value;
        break;
      case LogQuantity::tokens_per_second:
        step.tokens_per_second = value;
        break;
      case LogQuantity::tokens_per_second_per_gpu:
        step.tokens_per_second_per_gpu = value;
        break;
      case LogQuantity::samples_per_second:
        step.samples_per_second = value;
        break;
      case LogQuantity::tflops_per_gpu:
        step.tflops_per_gpu = value;
        break;
      case LogQuantity::global_batch:
        step.global_batch = value;
        break;
      case LogQuantity::sequence:
        step.sequence = value;
        break;
      case LogQuantity::consumed_samples:
        step.consumed_samples = value;
        break;
      case LogQuantity::consumed_tokens:
        step.consumed_tokens = value;
        break;
      case LogQuantity::skipped:
        step.skipped = value;
        break;
      default:
        store_elsewhere(quantity, value, line, step.step);
    }
  }

  /// Figures that do not belong to a step: memory, retries.
  void store_elsewhere(LogQuantity quantity, double value, const LogLine& line,
                       std::int64_t after_step) {
    if (quantity == LogQuantity::retries) {
      if (value > 0 && !log_.retries) {
        log_.retries = LoggedRemark{line.number, printable(line.text, 120)};
      }
      return;
    }
    if (quantity == LogQuantity::skipped_so_far) {
      event_ = event_ || value > skipped_so_far_;
      skipped_so_far_ = value;
      return;
    }
    LoggedMemory memory;
    memory.line = line.number;
    memory.after_step = after_step;
    if (add_memory(quantity, value, memory)) merge(memory);
  }

  static bool add_memory(LogQuantity quantity, double value, LoggedMemory& memory) {
    switch (quantity) {
      case LogQuantity::rank:
        memory.rank = static_cast<std::int64_t>(std::clamp(value, 0.0, 1e9));
        return false;
      case LogQuantity::after_step:
        memory.after_step = static_cast<std::int64_t>(std::clamp(value, 0.0, kLargestStep));
        return false;
      case LogQuantity::allocated:
        memory.allocated = value;
        return true;
      case LogQuantity::max_allocated:
        memory.max_allocated = value;
        return true;
      case LogQuantity::reserved:
        memory.reserved = value;
        return true;
      case LogQuantity::max_reserved:
        memory.max_reserved = value;
        return true;
      default:
        return false;
    }
  }

  /// Fields of one rank's memory line, and others that stand on lines of their own.
  void take_other(const LogField& field, const LogLine& line) {
    for (auto match = find_pattern(line.text, field.pattern, log_.format->suffixes); match;
         match = find_pattern(line.text, field.pattern, log_.format->suffixes, match->end)) {
      LoggedMemory memory;
      memory.line = line.number;
      memory.after_step = last_.step;
      bool any = false;
      for (std::size_t i = 0; i < match->count; ++i) {
        const LogCapture& capture = field.captures[i];
        const double value = match->numbers[i] * capture.scale;
        if (capture.quantity == LogQuantity::consumed_tokens) {
          if (open_ || !log_.steps.empty()) tokens_seen(value, line.number);
        } else if (capture.quantity == LogQuantity::retries ||
                   capture.quantity == LogQuantity::skipped_so_far) {
          store_elsewhere(capture.quantity, value, line, last_.step);
        } else {
          any = add_memory(capture.quantity, value, memory) || any;
        }
      }
      if (any) merge(memory);
    }
  }

  /// Cumulative tokens printed between the steps: of the last step so far.
  void tokens_seen(double tokens, std::int64_t) {
    if (!log_.steps.empty()) log_.steps.back().consumed_tokens = tokens;
  }

  void merge(const LoggedMemory& memory) {
    // Lines of a rank that continue it (Megatron-Bridge) give no rank.
    const std::int64_t rank = memory.rank.value_or(last_rank_);
    last_rank_ = rank;
    if (log_.memory.size() >= kMostRanks && !log_.memory.contains(rank)) return;
    LoggedMemory& known = log_.memory[rank];
    const auto larger = [](std::optional<double>& into, const std::optional<double>& from) {
      if (from && (!into || *from > *into)) into = from;
    };
    known.rank = memory.rank ? memory.rank : known.rank;
    known.line = memory.line;
    known.after_step = std::max(known.after_step.value_or(0), memory.after_step.value_or(0));
    larger(known.allocated, memory.allocated);
    larger(known.max_allocated, memory.max_allocated);
    larger(known.reserved, memory.reserved);
    larger(known.max_reserved, memory.max_reserved);
  }

  void take_values(const LogLine& line) {
    for (const ValueField& field : log_.format->values) {
      const auto match = find_pattern(line.text, field.pattern, log_.format->suffixes);
      if (!match) continue;
      for (std::size_t i = 0; i < match->count; ++i) {
        if (field.names[i].empty()) continue;
        add_value(field.names[i], fmt::format("{}", match->numbers[i]), line,
                  words_before_number(field.pattern));
      }
    }
    find_arguments(*log_.format, line.text,
                   [&](std::string_view name, std::string_view value, std::string_view key) {
                     add_value(name, value, line, key);
                   });
  }

  void add_value(std::string_view name, std::string_view value, const LogLine& line,
                 std::string_view key) {
    std::string text = printable(value, 200);
    std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    const auto same = [&](const LoggedValue& known) {
      return known.name == name && known.value == text;
    };
    if (text.empty() || log_.values.size() >= kMostValues ||
        std::ranges::any_of(log_.values, same)) {
      return;
    }
    std::string from = printable(key, 60);
    std::erase_if(from, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    log_.values.push_back({std::string(name), std::move(text), line.number, std::move(from)});
  }

  void note_version(std::string_view line) {
    for (const VersionMark& mark : log_.format->versions) {
      if (find_words(line, mark.mark) == std::string_view::npos) continue;
      log_.version_from = std::max(log_.version_from, mark.from);
      if (mark.until > 0 && (log_.version_until == 0 || mark.until < log_.version_until)) {
        log_.version_until = mark.until;
      }
    }
  }

  TrainingLog log_;
  Needles needles_;
  std::optional<LoggedStep> open_;  ///< its fields may follow
  LoggedStep last_;                 ///< the latest step, kept or not
  std::size_t begin_of_part_ = 0;
  bool event_ = false;
  double skipped_so_far_ = 0;
  std::int64_t last_rank_ = -1;
};

Error not_a_log(const std::string& where) {
  std::string names;
  for (const LogFormat& format : log_formats()) {
    names += (names.empty() ? "" : ", ") + std::string(format.title);
  }
  return input_error(where, "no line with a training step",
                     "the log of " + names + ", with the lines that it prints per step",
                     "some frameworks print no step times unless asked: Megatron-LM needs "
                     "--log-interval, DeepSpeed steps_per_print");
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
