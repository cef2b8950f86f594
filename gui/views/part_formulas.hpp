// Tooltips of the parts of memory and time: formula and source. docs/formulas.md has the details.
#pragma once

#include <string_view>

namespace echelon::gui {

struct PartFormula {
  std::string_view part;  ///< as report/format.hpp names it
  std::string_view formula;
  std::string_view source;
};

/// Null for an unknown part; a test checks that every part has one.
[[nodiscard]] const PartFormula* memory_formula(std::string_view part);
[[nodiscard]] const PartFormula* time_formula(std::string_view part);

}  // namespace echelon::gui
