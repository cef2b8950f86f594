// The text form of a schedule: grammar in docs/schedules.md. The reader is strict, so that a text
// has exactly one meaning and a schedule exactly one text.
#include <charconv>
#include <limits>
#include <optional>

#include "core/schedule/schedule.hpp"

namespace echelon {
namespace {

constexpr std::string_view kTitle = "echelon-schedule 1";

// ---------------------------------------------------------------------------------------- writing

void append_number(std::string& text, std::int64_t number) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  text.append(digits.data(), end.ptr);
}

void append_field(std::string& text, std::string_view tag, std::int64_t number) {
  text += ' ';
  text += tag;
  append_number(text, number);
}

void append_optional(std::string& text, std::string_view tag, std::optional<std::int32_t> number) {
  if (number) append_field(text, tag, *number);
}

template <class List>
void append_list(std::string& text, char tag, const List& numbers) {
  char before = tag;
  if (numbers.empty()) return;
  text += ' ';
  for (const auto number : numbers) {
    text += before;
    append_number(text, number);
    before = ',';
  }
}

void append_instruction(std::string& text, const Instruction& i) {
  append_number(text, i.id);
  text += ' ';
  text += name_of(i.op);
  if (i.queue != home_queue(i.op)) {
    text += " on=";
    text += name_of(i.queue);
  }
  append_optional(text, "c", i.chunk);
  append_optional(text, "m", i.microbatch);
  append_optional(text, "u", i.unit);
  append_optional(text, "p", i.peer);
  if (i.bytes > 0) append_field(text, "b", i.bytes);
  append_optional(text, "s", i.sequence);
  append_list(text, '<', i.reads);
  append_list(text, '>', i.writes);
  append_list(text, '@', i.after);
  text += '\n';
}

// ---------------------------------------------------------------------------------------- reading

/// Consumes one line from the front; the first mismatch is recorded as the error.
class LineReader {
 public:
  LineReader(std::string_view line, std::string where) : rest_(line), where_(std::move(where)) {}

  [[nodiscard]] bool failed() const { return error_.has_value(); }
  [[nodiscard]] Error error() const { return *error_; }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

  void fail(std::string_view expected) {
    if (failed()) return;
    std::string found = rest_.empty() ? "the end of the line" : "'";
    for (const char c : rest_.substr(0, 40)) found += c >= ' ' && c <= '~' ? c : '?';
    if (!rest_.empty()) found += '\'';
    error_ = input_error(where_, "found " + found, std::string(expected));
  }
  bool accept(std::string_view prefix) {
    if (failed() || !rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }
  void expect(std::string_view prefix) {
    if (!accept(prefix)) fail("'" + std::string(prefix) + "'");
  }
  /// A whole number ≥ `min` without sign and leading zeros.
  template <class T>
  T number(T min = 0) {
    T value = 0;
    const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    const auto digits = static_cast<std::size_t>(end - rest_.data());
    const bool plain =
        !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9' && (rest_[0] != '0' || digits == 1);
    if (failed() || problem != std::errc{} || !plain || value < min) {
      fail("a whole number from " + std::to_string(min) + " to " +
           std::to_string(std::numeric_limits<T>::max()));
      return min;
    }
    rest_.remove_prefix(digits);
    return value;
  }
  /// One of the names of an enumeration of `count` values.
  template <class Enum>
  Enum name(int count, std::string_view expected) {
    const std::string_view word = rest_.substr(0, std::min(rest_.find(' '), rest_.size()));
    for (int i = 0; i < count && !failed(); ++i) {
      if (name_of(static_cast<Enum>(i)) != word) continue;
      rest_.remove_prefix(word.size());
      return static_cast<Enum>(i);
    }
    fail(expected);
    return {};
  }
  template <class T, int N>
  void list(std::string_view tag, Few<T, N>& out) {
    if (!accept(tag)) return;
    do {
      if (out.size() == N) return fail("at most " + std::to_string(N) + " numbers");
      out.push_back(number<T>());
    } while (accept(","));
  }
  Status finish() {
    if (!failed() && !at_end()) fail("the end of the line");
    if (failed()) return error();
    return Done{};
  }

 private:
  std::string_view rest_;
  std::string where_;
  std::optional<Error> error_;
};

Instruction read_instruction(LineReader& line) {
  Instruction i;
  i.id = line.number<std::uint32_t>();
  line.expect(" ");
  i.op = line.name<Op>(kOps, "an instruction, such as F, B, send_f");
  i.queue = home_queue(i.op);
  if (line.accept(" on=")) {
    i.queue = line.name<Queue>(kQueues, "a queue");
    if (i.queue == home_queue(i.op)) line.fail("a queue other than the instruction's default");
  }
  const auto field = [&](std::string_view tag, std::optional<std::int32_t>& out) {
    if (line.accept(tag)) out = line.number<std::int32_t>();
  };
  field(" c", i.chunk);
  field(" m", i.microbatch);
  field(" u", i.unit);
  field(" p", i.peer);
  if (line.accept(" b")) i.bytes = line.number<std::int64_t>(1);
  field(" s", i.sequence);
  line.list(" <", i.reads);
  line.list(" >", i.writes);
  line.list(" @", i.after);
  return i;
}

Buffer read_buffer(LineReader& line) {
  Buffer buffer;
  buffer.kind = line.name<BufferKind>(kBufferKinds, "a kind of buffer, such as saved, input");
  line.expect(" ");
  buffer.bytes = line.number<std::int64_t>();
  line.expect(" at ");
  buffer.offset = line.number<std::int64_t>();
  return buffer;
}

void read_header(LineReader& line, Schedule& out) {
  line.expect("pipeline ");
  out.kind = line.name<ScheduleKind>(
      6, "a schedule: gpipe, 1f1b, interleaved, zb-h1, dualpipev or dualpipe");
  const auto field = [&](std::string_view tag, std::int32_t& to) {
    line.expect(tag);
    to = line.number<std::int32_t>(1);
  };
  field(" ranks ", out.ranks);
  field(" chunks ", out.chunks);
  field(" microbatches ", out.microbatches);
  if (out.kind == ScheduleKind::interleaved) {
    out.group = out.ranks;
    if (line.accept(" group ")) {
      out.group = line.number<std::int32_t>(1);
      if (out.group <= out.ranks) line.fail("groups of more microbatches than ranks");
    }
  }
  field(" units ", out.units);
}

/// The lines of a text, each ended by '\n', with line numbers.
class Lines {
 public:
  Lines(std::string_view text, std::string_view where) : rest_(text), where_(where) {}

  LineReader next() {
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    const std::string_view line = rest_.substr(0, end);
    whole_ = end < rest_.size();
    rest_.remove_prefix(end + (whole_ ? 1 : 0));
    return {line, std::string(where_) + " line " + std::to_string(++number_)};
  }
  [[nodiscard]] bool last_was_whole() const { return whole_; }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  std::string_view where_;
  std::int64_t number_ = 0;
  bool whole_ = true;
};

/// Reads one line of the body; true if it was the last.
bool read_line(LineReader& line, Schedule& out) {
  if (line.accept("end")) {
    if (out.programs.size() != static_cast<std::size_t>(out.ranks)) {
      line.fail("one program per rank before the end");
    }
    return true;
  }
  if (line.accept("program ")) {
    const auto rank = line.number<std::uint32_t>();
    if (rank != out.programs.size() || rank >= static_cast<std::uint32_t>(out.ranks)) {
      line.fail("programs in the order of their ranks");
    }
    out.programs.emplace_back();
  } else if (out.programs.empty()) {
    line.fail("'program 0'");
  } else if (line.accept("buffer ")) {
    if (!out.programs.back().instructions.empty()) line.fail("buffers before instructions");
    out.programs.back().buffers.push_back(read_buffer(line));
  } else {
    out.programs.back().instructions.push_back(read_instruction(line));
  }
  return false;
}

}  // namespace

std::string to_text(const Schedule& schedule) {
  std::string text{kTitle};
  text += "\npipeline ";
  text += name_of(schedule.kind);
  append_field(text, "ranks ", schedule.ranks);
  append_field(text, "chunks ", schedule.chunks);
  append_field(text, "microbatches ", schedule.microbatches);
  if (schedule.group > schedule.ranks) append_field(text, "group ", schedule.group);
  append_field(text, "units ", schedule.units);
  text += '\n';
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    text += "program";
    append_field(text, "", static_cast<std::int64_t>(rank));
    text += '\n';
    for (const Buffer& buffer : schedule.programs[rank].buffers) {
      text += "buffer ";
      text += name_of(buffer.kind);
      append_field(text, "", buffer.bytes);
      append_field(text, "at ", buffer.offset);
      text += '\n';
    }
    for (const Instruction& i : schedule.programs[rank].instructions) append_instruction(text, i);
  }
  return text += "end\n";
}

Result<Schedule> parse_schedule_text(std::string_view text, std::string_view where) {
  Schedule schedule;
  Lines lines(text, where);
  LineReader title = lines.next();
  title.expect(kTitle);
  if (const Status done = title.finish(); !done) return done.error();
  LineReader header = lines.next();
  read_header(header, schedule);
  if (const Status done = header.finish(); !done) return done.error();
  for (bool ended = false; !ended;) {
    LineReader line = lines.next();
    if (!lines.last_was_whole()) {
      line.fail("a complete line, and 'end' as the last one");
      return line.error();
    }
    ended = read_line(line, schedule);
    if (const Status done = line.finish(); !done) return done.error();
  }
  if (!lines.at_end()) {
    LineReader line = lines.next();
    line.fail("nothing after 'end'");
    return line.error();
  }
  return schedule;
}

}  // namespace echelon
