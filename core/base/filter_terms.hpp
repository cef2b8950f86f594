// The language of filters over rows and plans: "framework=nanotron, gpus >= 64 fits".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace echelon {

enum class FilterComparison { equal, not_equal, less, at_most, more, at_least };

/// NAME OPERATOR VALUE, or a bare word.
struct FilterTerm {
  std::string name;  ///< "" for a bare word
  FilterComparison comparison = FilterComparison::equal;
  std::string value;         ///< may be ""; the word, for a bare word
  bool after_comma = false;  ///< or first
  std::string written;       ///< for messages

  [[nodiscard]] bool is_word() const { return name.empty(); }
};

/// Terms are separated by commas or blanks, which both mean "and"; blanks around an operator (=,
/// !=,
/// <, <=, >, >=) belong to its term. Errors name `where`: an operator without a name, a lone '!'.
[[nodiscard]] Result<std::vector<FilterTerm>> parse_filter_terms(std::string_view text,
                                                                 std::string_view where);
[[nodiscard]] Error not_a_condition(std::string_view written, std::string_view where);

/// <, <=, > and >=, which text does not have.
[[nodiscard]] bool needs_order(FilterComparison comparison);
[[nodiscard]] bool holds(double value, FilterComparison comparison, double limit);

}  // namespace echelon
