// Text in messages and names: the few operations that every folder needs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace echelon {

/// What was found, for a message: control characters as ?, at most `longest` bytes and then an
/// ellipsis. A UTF-8 character is kept or left out as a whole.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t longest = 60) {
  constexpr unsigned char kFirstPrintable = 0x20;
  constexpr char kDelete = 0x7f;
  const auto inside_character = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u;
  };
  const bool shortened = text.size() > longest;
  std::size_t end = shortened ? longest : text.size();
  while (shortened && end > 0 && inside_character(end)) --end;
  std::string out;
  for (const char c : text.substr(0, end)) {
    out += static_cast<unsigned char>(c) < kFirstPrintable || c == kDelete ? '?' : c;
  }
  return out + (shortened ? "..." : "");
}
/// The same in single quotes: 'text'.
[[nodiscard]] inline std::string in_quotes(std::string_view text, std::size_t longest = 60) {
  return "'" + printable(text, longest) + "'";
}

/// ASCII letters in lower case, the same in every locale.
[[nodiscard]] constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
[[nodiscard]] inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_case(c);
  return lower;
}

}  // namespace echelon
