// Patterns of fields in lines of a log, found anywhere in the line: launchers put prefixes before a
// line, and ranks that print at once run lines together.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace echelon {

inline constexpr std::size_t kMostCaptures = 6;

/// The numbers that a pattern captured, and where it matched.
struct PatternMatch {
  std::array<double, kMostCaptures> numbers{};
  std::size_t count = 0;
  std::size_t begin = 0, end = 0;
};

/// Finds `pattern` in `line` at or after `from`. In a pattern
///   #      is a number: 6,785  1.5528E+03  -2; with `suffixes` also 8.79K, 43.2M, 1.2B, 3G, 2T
///          (thousands: 1000) and k
///   %      is a duration h:mm:ss or mm:ss, in seconds
///   blank  is any number of blanks, also none
///   ~      is any number of blanks and equals signs, also none
/// and everything else is itself. A pattern begins with a character that is itself.
[[nodiscard]] std::optional<PatternMatch> find_pattern(std::string_view line,
                                                       std::string_view pattern,
                                                       bool suffixes = false, std::size_t from = 0);

/// Position of `words` in `line` at or after `from`, or npos.
[[nodiscard]] std::size_t find_words(std::string_view line, std::string_view words,
                                     std::size_t from = 0);

/// Seconds between an arbitrary origin and the first time stamp of a line, as
/// 2025-03-31 05:54:07[.123456|,123], 2025-03-31T05:54:07, 08/31/2024 14:37:22 or 08/31 14:37:22;
/// differences are meaningful within one log.
[[nodiscard]] std::optional<double> time_stamp_of(std::string_view line);

}  // namespace echelon
