// Seeded changes to an input: a bounded stand-in for libFuzzer on machines without clang.
#pragma once

#include <string>
#include <string_view>

#include "tests/support/numbers.hpp"

namespace echelon::fuzz {

/// `input` with one to eight changes: bytes flipped, inserted, removed or repeated, parts of
/// `other` inserted, numbers and words replaced by typical edge cases, the end truncated.
[[nodiscard]] std::string mutated(std::string input, std::string_view other, Numbers& numbers);

}  // namespace echelon::fuzz
