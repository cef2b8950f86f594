// Long texts inside a JSON file: compressed if they are long, and encoded as printable characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace echelon {

/// A plain text, or one zstd frame of it in base64 (RFC 4648 section 4, padded).
struct CompressedText {
  bool compressed = false;
  std::int64_t bytes = 0;  ///< of the text itself
  std::string text;
  bool operator==(const CompressedText&) const = default;
};

/// Texts up to this many bytes are kept readable.
inline constexpr std::size_t kMaxPlainBytes = std::size_t{64} << 10;
/// Longer texts are neither packed nor unpacked.
inline constexpr std::int64_t kMaxTextBytes = std::int64_t{256} << 20;

/// The same text gives the same result with the same version of libzstd; the text must not be
/// longer than kMaxTextBytes.
[[nodiscard]] CompressedText pack_text(std::string_view text);
/// Memory is bounded by the declared `bytes`, which must not exceed kMaxTextBytes or the largest
/// content of a frame of that length. Errors: a declared length that differs from the text's, text
/// that is not base64, anything but exactly one complete zstd frame.
[[nodiscard]] Result<std::string> unpack_text(const CompressedText& packed, std::string_view where);

}  // namespace echelon
