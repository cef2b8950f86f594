// "Did you mean": the known name closest to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace echelon {

/// The entry of `known` with the smallest edit distance (insert, delete, substitute, swap of
/// neighbours; case ignored) to `word`, or "" when even the best one differs in more than a third
/// of its letters (at least 2). Ties go to the first in the list.
[[nodiscard]] std::string nearest_name(std::string_view word, std::span<const std::string> known);

/// "did you mean 'x'?" or, when nothing is near, "" .
[[nodiscard]] std::string did_you_mean(std::string_view word, std::span<const std::string> known);

}  // namespace echelon
