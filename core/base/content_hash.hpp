// A short name for a text: equal texts, and in practice only those, have the same.
#pragma once

#include <string>
#include <string_view>

namespace echelon {

/// XXH3, 128 bits, seed 0, as 32 hexadecimal digits: `xxhsum -H2` prints the same. Notices damage
/// and edits; it is no signature, anyone can compute it.
[[nodiscard]] std::string content_hash(std::string_view text);

}  // namespace echelon
