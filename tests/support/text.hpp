// Checks of text.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "tests/support/catch.hpp"

namespace echelon::test {

/// "" when `part` occurs in `text`, else both, so that a failing CHECK(lacks(...) == "") shows
/// them.
inline std::string lacks(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return {};
  return "no \"" + std::string(part) + "\" in:\n" + std::string(text);
}

/// `part` occurs in `text`, which a failure of the next assertion shows.
inline bool mentions(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}
inline bool mentions(const Error& error, const std::string& part) {
  return mentions(error.message(), part);
}

}  // namespace echelon::test
