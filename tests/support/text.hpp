// Checks of text.
#pragma once

#include <string>
#include <string_view>

namespace echelon::test {

/// "" when `part` occurs in `text`, else both, so that a failing CHECK(lacks(...) == "") shows
/// them.
inline std::string lacks(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return {};
  return "no \"" + std::string(part) + "\" in:\n" + std::string(text);
}

}  // namespace echelon::test
