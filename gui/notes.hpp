// What the tooltips of memory and time say about each part: its formula in a sentence, and where
// it is from. docs/formulas.md has them in full.
#pragma once

#include <string_view>

namespace echelon::gui {

struct PartNote {
  std::string_view part;  ///< as report/format.hpp names it
  std::string_view formula;
  std::string_view source;
};

/// Null for a part that has none (a test says there is no such part).
[[nodiscard]] const PartNote* note_of_memory(std::string_view part);
[[nodiscard]] const PartNote* note_of_time(std::string_view part);

}  // namespace echelon::gui
