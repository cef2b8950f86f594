#include "tests/house/source_line.hpp"

#include <regex>

namespace echelon::house {

std::string code_of(const std::string& line) {
  std::string code;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quoted && line[i] == '\\') {
      ++i;
      continue;
    }
    if (line[i] == '"' && (i == 0 || line[i - 1] != '\'')) {
      quoted = !quoted;
      continue;
    }
    if (quoted) continue;
    if (line.compare(i, 2, "//") == 0) break;
    code += line[i];
  }
  return code;
}

std::vector<std::string> literals_of(const std::string& line) {
  std::vector<std::string> literals;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quoted && line[i] == '\\') {
      literals.back() += line[++i];
    } else if (line[i] == '"' && (i == 0 || line[i - 1] != '\'')) {
      quoted = !quoted;
      if (quoted) literals.emplace_back();
    } else if (quoted) {
      literals.back() += line[i];
    } else if (line.compare(i, 2, "//") == 0) {
      break;
    }
  }
  return literals;
}

std::optional<std::string> included(const std::string& line) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"][^>"]+)[>"].*)");
  std::smatch match;
  if (!std::regex_match(line, match, include)) return std::nullopt;
  return match[1];
}

}  // namespace echelon::house
