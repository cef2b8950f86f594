#include "tests/fuzz/mutate.hpp"

#include <algorithm>
#include <array>

namespace echelon::fuzz {
namespace {

constexpr std::array<std::string_view, 34> kWords = {
    "0",     "-1",     "1",    "2147483647", "2147483648", "9223372036854775807",
    "1e308", "-1e308", "1e-9", "1e999",      "0.5",        "NaN",
    "null",  "true",   "{}",   "[]",         "\"\"",       "\"\\u0000\"",
    "\xff",  "\xc3",   ",",    ":",          "\"",         "\n",
    "\r\n",  "{",      "[",    "]",          "}",          "<1,2",
    "@0",    "c0",     " ",    "=="};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A random place, or the start of the number or word there.
std::size_t place_in(const std::string& text, Numbers& numbers, bool at_number) {
  std::size_t at = numbers.below(text.size());
  if (!at_number) return at;
  const auto found =
      std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), is_digit);
  return found == text.end() ? at : static_cast<std::size_t>(found - text.begin());
}

void change_once(std::string& text, std::string_view other, Numbers& numbers) {
  if (text.empty()) text = " ";
  constexpr std::size_t kLongestPart = 64;
  const std::size_t kind = numbers.below(9);
  const std::size_t at = place_in(text, numbers, kind == 6);
  const std::size_t length = std::min(1 + numbers.below(kLongestPart), text.size() - at);
  switch (kind) {
    case 0: text[at] = static_cast<char>(text[at] ^ (1 << numbers.below(8))); break;
    case 1: text[at] = static_cast<char>(numbers.below(256)); break;
    case 2: text.insert(at, 1, static_cast<char>(numbers.below(256))); break;
    case 3: text.erase(at, length); break;
    case 4: text.insert(at, text.substr(at, length)); break;
    case 5: {
      if (other.empty()) break;
      text.insert(at, other.substr(numbers.below(other.size()), length));
      break;
    }
    case 6: {
      std::size_t end = at;
      while (end < text.size() && is_digit(text[end])) ++end;
      text.replace(at, end - at, kWords[numbers.below(kWords.size())]);
      break;
    }
    case 7: text.insert(at, kWords[numbers.below(kWords.size())]); break;
    default:
      if (numbers.below(8) == 0)
        text.resize(at);
      else
        text.replace(at, length, kWords[numbers.below(kWords.size())]);
  }
}

}  // namespace

std::string mutated(std::string input, std::string_view other, Numbers& numbers) {
  for (std::size_t left = 1 + numbers.below(8); left > 0; --left) {
    change_once(input, other, numbers);
  }
  return input;
}

}  // namespace echelon::fuzz
