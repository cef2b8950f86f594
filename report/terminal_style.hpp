// Capabilities of a terminal: width, colour, and characters beyond ASCII.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace echelon {

/// Decided once, at the edge (cli/system/terminal.cpp); everything below is a pure function of it.
struct TextStyle {
  int width = 80;
  bool color = false;
  bool unicode = true;
};

enum class Paint { plain, bold, dim, good, bad, warning, accent };
/// `text` between ANSI escapes, or unchanged where colour is off.
[[nodiscard]] std::string painted(std::string_view text, Paint paint, const TextStyle& style);

/// Columns `text` takes: code points, without colour escapes (we print no wide characters).
[[nodiscard]] std::size_t columns_of(std::string_view text);
/// Words of `text` in lines of at most style.width columns; the first line starts with `first`, the
/// others are indented by as many blanks. Ends with a newline.
[[nodiscard]] std::string folded(std::string_view text, std::string_view first,
                                 const TextStyle& style);
/// A bar of `share` (0..1) of `columns`, in eighths where the terminal can show them.
[[nodiscard]] std::string bar(double share, int columns, const TextStyle& style);
/// A section's title on a line of its own, after an empty line.
[[nodiscard]] std::string heading(std::string_view title, const TextStyle& style);
/// Middle dot, multiplication sign, dash ...: `fancy`, or `plain` on ASCII terminals.
[[nodiscard]] std::string_view glyph(std::string_view fancy, std::string_view plain,
                                     const TextStyle& style);

}  // namespace echelon
