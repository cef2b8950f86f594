// Text in messages and names: the few operations that every folder needs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace echelon {

/// What was found, for a message: 'text' in quotes, control characters as ?, at most `longest`
/// characters and then an ellipsis.
[[nodiscard]] inline std::string in_quotes(std::string_view text, std::size_t longest = 60) {
  constexpr unsigned char kFirstPrintable = 0x20;
  constexpr char kDelete = 0x7f;
  std::string out = "'";
  for (const char c : text.substr(0, longest)) {
    out += static_cast<unsigned char>(c) < kFirstPrintable || c == kDelete ? '?' : c;
  }
  return out + (text.size() > longest ? "...'" : "'");
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
