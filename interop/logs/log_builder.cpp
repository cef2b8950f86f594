#include "interop/logs/log_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"
#include "interop/logs/arguments.hpp"

namespace echelon {

namespace {

constexpr std::size_t kMostSteps = 500'000;
constexpr std::size_t kMostValues = 1000;
constexpr std::size_t kMostRanks = 100'000;
constexpr std::size_t kLongestArgumentLine = std::size_t{1} << 20;
/// Ranks print one step within this time of each other.
constexpr double kSameStepSeconds = 60;
constexpr int kVersionLines = 5000;
constexpr double kLargestStep = 1e15;
constexpr std::int64_t kLastLine = 2'000'000'000;  // that an int holds

constexpr std::string_view kRetries = "CUDA memory allocation retries";
constexpr std::array<std::string_view, 4> kGenerates = {
    "'completions/mean_length'", "'completion_length'", "rollout_time", "'sampling/"};

/// The words of a pattern before its first number.
std::string_view words_before_number(std::string_view pattern) {
  const std::string_view words = pattern.substr(0, pattern.find('#'));
  const std::size_t begin = std::min(words.find_first_not_of(" ,|:"), words.size());
  return words.substr(begin, words.find_last_not_of(" :=|(") + 1 - begin);
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
  if ((format.dumps & kDotted) != 0) {
    needles.add(" ...");
    needles.add("arguments -");
  }
  if ((format.dumps & kAssignments) != 0) needles.add("=");
  if ((format.dumps & kDictionary) != 0) needles.add("':"), needles.add("\":");
  if ((format.dumps & kYaml) != 0) needles.add(": ");
  if ((format.dumps & kTable) != 0) needles.add("|");
  if (format.fields_follow) needles.add("");
  return needles;
}

}  // namespace

bool has_any(std::string_view line, std::span<const std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    return find_words(line, word) != std::string_view::npos;
  });
}

LogBuilder::LogBuilder(const LogFormat& format, std::string path) : needles_(needles_of(format)) {
  log_.path = std::move(path);
  log_.format = &format;
}

void LogBuilder::take(const LogLine& line) {
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

TrainingLog LogBuilder::finish() {
  close_step();
  log_.arguments = arguments_.document();
  log_.arguments.name = log_.path;
  return std::move(log_);
}

bool LogBuilder::take_steps(const LogLine& line) {
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

void LogBuilder::begin_step(const LogLine& line, const PatternMatch& match, std::string_view part) {
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

void LogBuilder::close_step() {
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

bool LogBuilder::is_duplicate(const LoggedStep& step) const {
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

void LogBuilder::thin() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < log_.steps.size(); ++i) {
    if (i % 2 == 0 || log_.steps[i].new_run) log_.steps[kept++] = log_.steps[i];
  }
  log_.steps.resize(kept);
  log_.stride *= 2;
}

void LogBuilder::take_fields(std::span<const LogField> fields, std::string_view text,
                             const LogLine& line, LoggedStep& step) {
  for (const LogField& field : fields) {
    const auto match = find_pattern(text, field.pattern, log_.format->suffixes);
    if (!match) continue;
    for (std::size_t i = 0; i < match->count; ++i) {
      const LogCapture& capture = field.captures[i];
      store(capture.quantity, match->numbers[i] * capture.scale, line, step);
    }
  }
}

void LogBuilder::store(LogQuantity quantity, double value, const LogLine& line, LoggedStep& step) {
  switch (quantity) {
    case LogQuantity::seconds: step.seconds = value; break;
    case LogQuantity::tokens_per_second: step.tokens_per_second = value; break;
    case LogQuantity::tokens_per_second_per_gpu: step.tokens_per_second_per_gpu = value; break;
    case LogQuantity::samples_per_second: step.samples_per_second = value; break;
    case LogQuantity::tflops_per_gpu: step.tflops_per_gpu = value; break;
    case LogQuantity::global_batch: step.global_batch = value; break;
    case LogQuantity::sequence: step.sequence = value; break;
    case LogQuantity::consumed_samples: step.consumed_samples = value; break;
    case LogQuantity::consumed_tokens: step.consumed_tokens = value; break;
    case LogQuantity::skipped: step.skipped = value; break;
    default: store_elsewhere(quantity, value, line, step.step);
  }
}

void LogBuilder::store_elsewhere(LogQuantity quantity, double value, const LogLine& line,
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

bool LogBuilder::add_memory(LogQuantity quantity, double value, LoggedMemory& memory) {
  switch (quantity) {
    case LogQuantity::rank:
      memory.rank = static_cast<std::int64_t>(std::clamp(value, 0.0, 1e9));
      return false;
    case LogQuantity::after_step:
      memory.after_step = static_cast<std::int64_t>(std::clamp(value, 0.0, kLargestStep));
      return false;
    case LogQuantity::allocated: memory.allocated = value; return true;
    case LogQuantity::max_allocated: memory.max_allocated = value; return true;
    case LogQuantity::reserved: memory.reserved = value; return true;
    case LogQuantity::max_reserved: memory.max_reserved = value; return true;
    default: return false;
  }
}

void LogBuilder::take_other(const LogField& field, const LogLine& line) {
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
        if (open_ || !log_.steps.empty()) tokens_seen(value);
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

void LogBuilder::tokens_seen(double tokens) {
  if (!log_.steps.empty()) log_.steps.back().consumed_tokens = tokens;
}

void LogBuilder::merge(const LoggedMemory& memory) {
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

void LogBuilder::take_values(const LogLine& line) {
  if ((log_.format->dumps & kDotted) != 0) {
    arguments_.take(line.text, static_cast<int>(std::min<std::int64_t>(line.number, kLastLine)));
  }
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

void LogBuilder::add_value(std::string_view name, std::string_view value, const LogLine& line,
                           std::string_view key) {
  std::string text = printable(value, 200);
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  const auto same = [&](const LoggedValue& known) {
    return known.name == name && known.value == text;
  };
  if (text.empty() || log_.values.size() >= kMostValues || std::ranges::any_of(log_.values, same)) {
    return;
  }
  std::string from = printable(key, 60);
  std::erase_if(from, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  log_.values.push_back({std::string(name), std::move(text), line.number, std::move(from)});
}

void LogBuilder::note_version(std::string_view line) {
  for (const VersionMark& mark : log_.format->versions) {
    if (find_words(line, mark.mark) == std::string_view::npos) continue;
    log_.version_from = std::max(log_.version_from, mark.from);
    if (mark.until > 0 && (log_.version_until == 0 || mark.until < log_.version_until)) {
      log_.version_until = mark.until;
    }
  }
}

}  // namespace echelon
