// A short identifier of a text: equal texts have equal hashes, different texts in practice do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace echelon {

/// XXH3, 128 bits, seed 0, as 32 hexadecimal digits: `xxhsum -H2` prints the same. It detects
/// damage and edits; it is not a signature, since anyone can compute it.
[[nodiscard]] std::string content_hash(std::string_view text);
/// XXH3, 64 bits, of data on their way.
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> data);

}  // namespace echelon
