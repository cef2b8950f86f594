// "Did you mean": the known name closest to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace echelon {

/// The entry of `known` most similar to `word`, ignoring case and leading dashes. In this order:
/// `word` is made of the entry's initials (lr, learning-rate); the entry is one edit away (insert,
/// delete, substitute, swap of adjacent letters); one of the two begins with the other; both share
/// a word of at least three letters; the fewest edits, at most a third of the letters (or 2, if
/// that is more). "" if no entry is similar; ties go to the first.
[[nodiscard]] std::string nearest_name(std::string_view word, std::span<const std::string> known);

/// "did you mean 'x'?", or "" if no entry is similar.
[[nodiscard]] std::string did_you_mean(std::string_view word, std::span<const std::string> known);

}  // namespace echelon
