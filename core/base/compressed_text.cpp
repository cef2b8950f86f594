#include "core/base/compressed_text.hpp"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

namespace echelon {
namespace {

struct Parameter {
  ZSTD_cParameter name;
  int value;
};
// The lines of a schedule are alike except for numbers that count up: the optimal parser pays off,
// long match distances do not. Chosen by measurement: docs/plan-file.md, "Size and time".
constexpr Parameter kParameters[] = {{ZSTD_c_compressionLevel, 16}, {ZSTD_c_strategy, ZSTD_btopt},
                                     {ZSTD_c_windowLog, 22},        {ZSTD_c_chainLog, 16},
                                     {ZSTD_c_hashLog, 17},          {ZSTD_c_searchLog, 2},
                                     {ZSTD_c_minMatch, 6},          {ZSTD_c_targetLength, 16}};

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < have ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= have ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

/// Nothing if base64() does not write such text.
std::optional<std::string> from_base64(std::string_view text) {
  static constexpr auto kValues = [] {
    std::array<std::uint8_t, 256> values{};
    values.fill(64);
    for (std::size_t i = 0; i < kDigits.size(); ++i) {
      values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::uint8_t>(i);
    }
    return values;
  }();
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const std::size_t padding = !last || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const bool pad = k >= 4 - padding;
      const std::uint8_t value = pad ? 0 : kValues[static_cast<unsigned char>(text[i + k])];
      if (value == 64) return std::nullopt;
      group = group << 6 | value;
    }
    // Unused bits are zero, so that a frame has only one encoding.
    if ((group & ((1U << (8 * padding)) - 1)) != 0) return std::nullopt;
    for (std::size_t k = 0; k < 3 - padding; ++k) {
      out += static_cast<char>(group >> (16 - 8 * k) & 255);
    }
  }
  return out;
}

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

/// Upper bound on the content of a frame of `compressed` bytes: a block has a header of 3 bytes and
/// decompresses to at most 128 KiB. Source: RFC 8878 sections 3.1.1.2 and 3.1.1.2.4.
std::int64_t max_bytes_in_frame(std::size_t compressed) {
  constexpr std::int64_t kBlock = std::int64_t{128} << 10;
  return static_cast<std::int64_t>(compressed / 3 + 1) * kBlock;
}

Result<std::string> decompressed(const std::string& frame, std::int64_t bytes,
                                 std::string_view where) {
  const std::string expected = "one zstd frame of " + std::to_string(bytes) + " bytes";
  const auto error = [&](std::string found) {
    return input_error(std::string(where), std::move(found), expected);
  };
  const std::size_t length = ZSTD_findFrameCompressedSize(frame.data(), frame.size());
  if (ZSTD_isError(length) != 0) return error("compressed text that is damaged");
  if (length != frame.size()) return error("more than one frame");
  const unsigned long long content = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (content != static_cast<unsigned long long>(bytes)) {
    return error(content >= ZSTD_CONTENTSIZE_ERROR
                     ? "a frame without its content length"
                     : "a frame of " + std::to_string(content) + " bytes");
  }
  if (bytes > max_bytes_in_frame(frame.size())) {
    return error("a frame of " + std::to_string(frame.size()) +
                 " bytes, which cannot hold that much");
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  const std::size_t done = ZSTD_decompress(text.data(), text.size(), frame.data(), frame.size());
  if (ZSTD_isError(done) != 0 || done != text.size()) {
    return error("compressed text that is damaged");
  }
  return text;
}

}  // namespace

CompressedText pack_text(std::string_view text) {
  EXPECTS(static_cast<std::int64_t>(text.size()) <= kMaxTextBytes, "a text too long to pack");
  CompressedText packed{false, static_cast<std::int64_t>(text.size()), {}};
  if (text.size() <= kMaxPlainBytes) {
    packed.text = text;
    return packed;
  }
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  EXPECTS(context != nullptr, "no memory for a compressor");
  for (const auto& [name, value] : kParameters) {
    const std::size_t set = ZSTD_CCtx_setParameter(context.get(), name, value);
    EXPECTS(ZSTD_isError(set) == 0, ZSTD_getErrorName(set));
  }
  std::string frame(ZSTD_compressBound(text.size()), '\0');
  const std::size_t length =
      ZSTD_compress2(context.get(), frame.data(), frame.size(), text.data(), text.size());
  EXPECTS(ZSTD_isError(length) == 0, ZSTD_getErrorName(length));
  frame.resize(length);
  packed.compressed = true;
  packed.text = base64(frame);
  return packed;
}

Result<std::string> unpack_text(const CompressedText& packed, std::string_view where) {
  if (packed.bytes < 0 || packed.bytes > kMaxTextBytes) {
    return input_error(std::string(where), "a text of " + std::to_string(packed.bytes) + " bytes",
                       "at most " + std::to_string(kMaxTextBytes));
  }
  if (packed.compressed) {
    const std::optional<std::string> frame = from_base64(packed.text);
    if (!frame) {
      return input_error(std::string(where), "text that is not base64",
                         "letters, digits, + and /, padded with =");
    }
    return decompressed(*frame, packed.bytes, where);
  }
  if (static_cast<std::int64_t>(packed.text.size()) != packed.bytes) {
    return input_error(std::string(where), std::to_string(packed.text.size()) + " bytes of text",
                       std::to_string(packed.bytes) + ", the declared length");
  }
  return packed.text;
}

}  // namespace echelon
