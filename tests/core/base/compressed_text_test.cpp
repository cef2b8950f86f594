#include "core/base/compressed_text.hpp"

#include "core/base/content_hash.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

/// Numbered lines, as in a schedule.
std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i) + " F c0 m" + std::to_string(i) + "\n";
  return text;
}

std::string packed_error(const CompressedText& packed) {
  const Result<std::string> text = unpack_text(packed, "p.json at /program/text");
  REQUIRE_FALSE(text.ok());
  CHECK(text.error().kind == Error::Kind::input);
  CHECK(text.error().where == "p.json at /program/text");
  CHECK_FALSE(text.error().found.empty());
  CHECK_FALSE(text.error().expected.empty());
  return text.error().message();
}

}  // namespace

TEST_CASE("a content hash is XXH3 with 128 bits") {
  // Source: the reference implementation, `xxhsum -H2` of an empty input.
  CHECK(content_hash("") == "99aa06d3014798d86001c324468d497f");
  CHECK(content_hash("a") != content_hash("b"));
  CHECK(content_hash(std::string_view("\0", 1)) != content_hash(""));
}

TEST_CASE("short texts stay readable and long ones are compressed") {
  for (const int count : {0, 1, 10, 5000, 20'000}) {
    const std::string text = lines(count);
    const CompressedText packed = pack_text(text);
    CHECK(packed.compressed == (text.size() > kMaxPlainBytes));
    CHECK(packed.bytes == static_cast<std::int64_t>(text.size()));
    if (packed.compressed) CHECK(packed.text.size() < text.size() / 3);
    CHECK(pack_text(text) == packed);
    CHECK(*unpack_text(packed, "here") == text);
  }
  // Every length modulo three.
  for (std::size_t more = 1; more < 7; ++more) {
    const std::string text = lines(10'000) + std::string(more, 'x');
    CHECK(*unpack_text(pack_text(text), "here") == text);
  }
}

TEST_CASE("a wrong declared length is refused before memory is allocated") {
  CompressedText plain = pack_text("abc");
  plain.bytes = 4;
  CHECK(lacks(packed_error(plain), "3 bytes of text; expected 4") == "");
  CompressedText packed = pack_text(lines(20'000));
  const std::int64_t right = packed.bytes;
  packed.bytes = right + 1;
  CHECK(lacks(packed_error(packed), "a frame of " + std::to_string(right) + " bytes") == "");
  packed.bytes = kMaxTextBytes + 1;
  CHECK(lacks(packed_error(packed), "at most 268435456") == "");
  packed.bytes = -1;
  CHECK(lacks(packed_error(packed), "-1 bytes") == "");
}

TEST_CASE("a decompression bomb is refused without unpacking it") {
  // Header of a frame that declares 16,777,215 bytes, and one block of 128 KiB of 'a'.
  const CompressedText bomb{true, (1 << 24) - 1, "KLUv/aD///8AAwAQYQ=="};
  CHECK(lacks(packed_error(bomb), "cannot hold that much") == "");
}

TEST_CASE("damaged text is refused at any position of the damage") {
  const CompressedText packed = pack_text(lines(6000));
  REQUIRE(packed.compressed);
  for (std::size_t at = 0; at < packed.text.size(); at += 97) {
    CompressedText changed = packed;
    changed.text[at] = changed.text[at] == 'A' ? 'B' : 'A';
    const Result<std::string> text = unpack_text(changed, "here");
    if (text) CHECK(*text != lines(6000));  // the hash detects it
    changed.text[at] = '*';
    CHECK(lacks(packed_error(changed), "not base64") == "");
  }
  for (std::size_t length = 0; length < packed.text.size(); length += 101) {
    CompressedText changed = packed;
    changed.text.resize(length);
    (void)packed_error(changed);
  }
  CompressedText twice = packed;
  const std::size_t padding = packed.text.find('=');
  if (padding == std::string::npos) {
    twice.text += packed.text;
    CHECK(lacks(packed_error(twice), "more than one frame") == "");
  }
}
