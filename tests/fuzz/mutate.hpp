// Seeded changes to an input: a bounded stand-in for libFuzzer where clang is not.
#pragma once

#include <string>
#include <string_view>

#include "tests/support/numbers.hpp"

namespace echelon::fuzz {

/// `input` with one to eight changes: bytes flipped, put in, taken out or repeated, parts of
/// `other` put in, numbers and words replaced by ones that readers stumble over, the end cut off.
[[nodiscard]] std::string mutated(std::string input, std::string_view other, Numbers& numbers);

}  // namespace echelon::fuzz
