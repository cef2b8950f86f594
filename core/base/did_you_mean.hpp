// "Did you mean": the known name closest to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace echelon {

/// The entry of `known` most like `word`, case and leading dashes ignored: whose words have it as
/// initials (lr, learning-rate); one edit away (insert, delete, substitute, swap of neighbours);
/// that begins with it, or it with the entry; that shares a word of three letters with it; then the
/// fewest edits, at most a third of the letters (at least 2). "" when none is; ties go to the
/// first.
[[nodiscard]] std::string nearest_name(std::string_view word, std::span<const std::string> known);

/// "did you mean 'x'?" or, when nothing is near, "" .
[[nodiscard]] std::string did_you_mean(std::string_view word, std::span<const std::string> known);

}  // namespace echelon
