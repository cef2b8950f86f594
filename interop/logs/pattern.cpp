#include "interop/logs/pattern.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>

namespace echelon {

namespace {

bool is_figure(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

/// 1000^k of a suffix, 1 without one.
double factor_of(char c) {
  switch (c) {
    case 'k':
    case 'K': return 1e3;
    case 'M': return 1e6;
    case 'B':
    case 'G': return 1e9;
    case 'T': return 1e12;
    default: return 1;
  }
}

/// A number at the beginning of `text`, which it shortens.
std::optional<double> take_number(std::string_view& text, bool suffixes) {
  constexpr std::size_t kLongest = 32;
  char plain[kLongest];
  std::size_t size = 0;
  std::size_t used = 0;
  for (; used < text.size() && size < kLongest; ++used) {
    const char c = text[used];
    const bool exponent =
        (c == 'e' || c == 'E') && used + 1 < text.size() && size > 0 &&
        (is_figure(text[used + 1]) || text[used + 1] == '-' || text[used + 1] == '+');
    const bool sign =
        (c == '-' || c == '+') && (used == 0 || text[used - 1] == 'e' || text[used - 1] == 'E');
    const bool comma = c == ',' && used + 3 < text.size() && used > 0 &&
                       is_figure(text[used - 1]) && is_figure(text[used + 1]) &&
                       is_figure(text[used + 2]) && is_figure(text[used + 3]);
    if (comma || (c == '+' && used == 0)) continue;
    if (!is_figure(c) && c != '.' && !exponent && !sign) break;
    plain[size++] = c;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(plain, plain + size, value);
  constexpr double kLargest = 1e18;  // of any quantity of a log, in its unit
  if (error != std::errc{} || !(std::abs(value) <= kLargest)) return {};
  // What from_chars left belongs to the text: "12." or "1.2.3".
  used -= static_cast<std::size_t>(plain + size - end);
  text.remove_prefix(used);
  if (suffixes && !text.empty() && factor_of(text.front()) != 1) {
    value *= factor_of(text.front());
    text.remove_prefix(1);
  }
  return value;
}

std::optional<double> take_duration(std::string_view& text) {
  double seconds = 0;
  for (int part = 0; part < 4; ++part) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || value < 0) return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    seconds = seconds * 60 + value;
    if (text.empty() || text.front() != ':') {
      return part == 0 ? std::nullopt : std::optional(seconds);
    }
    text.remove_prefix(1);
  }
  return {};
}

/// Matches the whole of `pattern` at the beginning of `text`, which it shortens.
bool matches_here(std::string_view& text, std::string_view pattern, bool suffixes,
                  PatternMatch& match) {
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == ' ' || c == '~') {
      while (!text.empty() && (is_blank(text.front()) || (c == '~' && text.front() == '='))) {
        text.remove_prefix(1);
      }
    } else if (c == '#' || c == '%') {
      // The M of "MiB" is no suffix.
      const bool suffix = suffixes && (i + 1 == pattern.size() || factor_of(pattern[i + 1]) == 1);
      const auto value = c == '#' ? take_number(text, suffix) : take_duration(text);
      if (!value || match.count == kMostCaptures) return false;
      match.numbers[match.count++] = *value;
    } else {
      if (text.empty() || text.front() != c) return false;
      text.remove_prefix(1);
    }
  }
  return true;
}

}  // namespace

std::size_t find_words(std::string_view line, std::string_view words, std::size_t from) {
  if (from >= line.size()) return std::string_view::npos;
  const void* at = ::memmem(line.data() + from, line.size() - from, words.data(), words.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - line.data());
}

std::optional<PatternMatch> find_pattern(std::string_view line, std::string_view pattern,
                                         bool suffixes, std::size_t from) {
  const std::size_t literal = std::min(pattern.find_first_of(" ~#%"), pattern.size());
  const std::string_view first = pattern.substr(0, literal);
  for (std::size_t at = find_words(line, first, from); at != std::string_view::npos;
       at = find_words(line, first, at + 1)) {
    PatternMatch match;
    match.begin = at;
    std::string_view text = line.substr(at + literal);
    if (!matches_here(text, pattern.substr(literal), suffixes, match)) continue;
    match.end = line.size() - text.size();
    return match;
  }
  return {};
}

namespace {

/// `size` digits at `at`, as a number; nothing if there are others or none.
std::optional<int> digits_at(std::string_view text, std::size_t at, std::size_t size) {
  if (at + size > text.size()) return {};
  int value = 0;
  for (std::size_t i = at; i < at + size; ++i) {
    if (!is_figure(text[i])) return {};
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

/// The date that ends at `end`: 2025-03-31, 08/31/2024 or 08/31. Days since an origin.
std::optional<double> date_before(std::string_view line, std::size_t end) {
  const auto number = [&](std::size_t back, std::size_t size) {
    return end < back ? std::nullopt : digits_at(line, end - back, size);
  };
  const auto is = [&](std::size_t back, char c) { return end >= back && line[end - back] == c; };
  std::optional<int> year, month, day;
  if (is(3, '-') && is(6, '-')) {
    year = number(10, 4), month = number(5, 2), day = number(2, 2);
  } else if (is(5, '/') && is(8, '/')) {
    month = number(10, 2), day = number(7, 2), year = number(4, 4);
  } else if (is(3, '/')) {
    year = 2000, month = number(5, 2), day = number(2, 2);  // nanotron prints no year
  }
  if (!year || !month || !day) return {};
  const std::chrono::year_month_day date{std::chrono::year{*year},
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return {};
  return static_cast<double>(std::chrono::sys_days{date}.time_since_epoch().count());
}

}  // namespace

std::optional<double> time_stamp_of(std::string_view line) {
  constexpr double kDaySeconds = 86400;
  for (std::size_t colon = line.find(':'); colon != std::string_view::npos;
       colon = line.find(':', colon + 1)) {
    if (colon < 2 || colon + 5 >= line.size() || line[colon + 3] != ':') continue;
    const auto hour = digits_at(line, colon - 2, 2);
    const auto minute = digits_at(line, colon + 1, 2);
    const auto second = digits_at(line, colon + 4, 2);
    if (!hour || !minute || !second || colon < 3) continue;
    const auto days = date_before(line, colon - 3);
    if (!days) continue;
    double seconds = *days * kDaySeconds + *hour * 3600 + *minute * 60 + *second;
    double place = 0.1;
    const std::size_t dot = colon + 6;
    if (dot < line.size() && (line[dot] == '.' || line[dot] == ',')) {
      for (std::size_t i = dot + 1; i < line.size() && is_figure(line[i]); ++i, place /= 10) {
        seconds += place * (line[i] - '0');
      }
    }
    return seconds;
  }
  return {};
}

}  // namespace echelon
