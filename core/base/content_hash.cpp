#include "core/base/content_hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace echelon {

std::string content_hash(std::string_view text) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, XXH3_128bits(text.data(), text.size()));
  std::string digits;
  for (const unsigned char byte : bytes.digest) {
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

std::uint64_t checksum(std::span<const std::byte> data) {
  return XXH3_64bits(data.data(), data.size());
}

}  // namespace echelon
