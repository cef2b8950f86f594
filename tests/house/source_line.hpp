// One line of C++, as the inspection reads it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace echelon::house {

/// The line without string literals and without a comment behind "//".
[[nodiscard]] std::string code_of(const std::string& line);
/// The string literals of a line, without a comment behind "//".
[[nodiscard]] std::vector<std::string> literals_of(const std::string& line);
/// The header an include line names, with its opening quote or bracket in front.
[[nodiscard]] std::optional<std::string> included(const std::string& line);

}  // namespace echelon::house
