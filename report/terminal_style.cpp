#include "report/terminal_style.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace echelon {

std::string painted(std::string_view text, Paint paint, const TextStyle& style) {
  if (!style.color || paint == Paint::plain || text.empty()) return std::string(text);
  static constexpr std::array<std::string_view, 7> kCodes = {"0", "1", "2", "32", "31", "33", "36"};
  std::string out = "\x1b[";
  out += kCodes[static_cast<std::size_t>(paint)];
  out += 'm';
  out += text;
  return out + "\x1b[0m";
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  bool escape = false;  // between ESC and its final letter nothing is printed
  for (const char c : text) {
    if (escape) {
      escape = c != 'm';
    } else if (c == '\x1b') {
      escape = true;
    } else if ((static_cast<unsigned char>(c) & 0xC0u) != 0x80u) {
      ++columns;  // the first byte of a code point
    }
  }
  return columns;
}

std::string folded(std::string_view text, std::string_view first, const TextStyle& style) {
  const std::size_t indent = columns_of(first);
  const std::size_t width =
      std::max<std::size_t>(static_cast<std::size_t>(style.width), indent + 20);
  std::string out(first);
  std::size_t column = indent;
  bool line_empty = true;
  while (!text.empty()) {
    const std::size_t start = text.find_first_not_of(' ');
    if (start == std::string_view::npos) break;
    text.remove_prefix(start);
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    const std::size_t wide = columns_of(word);
    if (!line_empty && column + 1 + wide > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
      line_empty = true;
    }
    if (!line_empty) {
      out += ' ';
      ++column;
    }
    out += word;
    column += wide;
    line_empty = false;
  }
  return out + '\n';
}

std::string bar(double share, int columns, const TextStyle& style) {
  if (!(share > 0) || columns <= 0) return {};
  const double cells = std::min(share, 1.0) * columns;
  std::string out;
  if (!style.unicode) return std::string(static_cast<std::size_t>(std::lround(cells)), '#');
  static constexpr std::array<std::string_view, 8> kEighths = {"",  "▏", "▎", "▍",
                                                               "▌", "▋", "▊", "▉"};
  const long eighths = std::max(std::lround(cells * 8), 1L);
  for (long i = 0; i < eighths / 8; ++i) out += "█";
  out += kEighths[static_cast<std::size_t>(eighths % 8)];
  return out;
}

std::string heading(std::string_view title, const TextStyle& style) {
  return "\n" + painted(title, Paint::bold, style) + "\n";
}

std::string_view glyph(std::string_view fancy, std::string_view plain, const TextStyle& style) {
  return style.unicode ? fancy : plain;
}

}  // namespace echelon
