// Many words looked for at once: most lines of a log have none of them.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace echelon {

/// The longest part of a pattern (pattern.hpp) that stands in a line as it is written.
[[nodiscard]] std::string_view longest_literal(std::string_view pattern);

class Needles {
 public:
  /// A word of fewer than four characters is taken to be on every line.
  void add(std::string_view word);
  /// Whether a line has one of the words. One pass over the line, whatever their number.
  [[nodiscard]] bool any_in(std::string_view line) const;

 private:
  static constexpr std::size_t kSlots = 4096;
  [[nodiscard]] static std::size_t slot_of(const char* four);

  bool always_ = false;
  std::bitset<kSlots> taken_;
  std::vector<std::string_view> words_;
};

}  // namespace echelon
