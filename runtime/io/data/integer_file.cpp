#include "runtime/io/data/integer_file.hpp"

#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include <fmt/format.h>

namespace echelon {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they lie");

/// Index of the first value that is not a valid id, if there is one.
template <class T>
std::optional<std::int64_t> to_int32(const char* raw, std::int64_t count, std::int64_t vocabulary,
                                     std::int32_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, raw + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    const auto id = static_cast<std::int64_t>(value);
    if (id < 0 || id >= vocabulary) return i;
    out[i] = static_cast<std::int32_t>(id);
  }
  return std::nullopt;
}

std::optional<std::int64_t> to_int32(IntegerType type, const char* raw, std::int64_t count,
                                     std::int64_t vocabulary, std::int32_t* out) {
  switch (type) {
    case IntegerType::u8: return to_int32<std::uint8_t>(raw, count, vocabulary, out);
    case IntegerType::i8: return to_int32<std::int8_t>(raw, count, vocabulary, out);
    case IntegerType::u16: return to_int32<std::uint16_t>(raw, count, vocabulary, out);
    case IntegerType::i16: return to_int32<std::int16_t>(raw, count, vocabulary, out);
    case IntegerType::u32: return to_int32<std::uint32_t>(raw, count, vocabulary, out);
    case IntegerType::i32: return to_int32<std::int32_t>(raw, count, vocabulary, out);
    case IntegerType::i64: return to_int32<std::int64_t>(raw, count, vocabulary, out);
  }
  return std::nullopt;
}

template <class T>
std::int64_t one_integer(const char* raw) {
  T value;
  std::memcpy(&value, raw, sizeof(T));
  return static_cast<std::int64_t>(value);
}

/// For the message about an invalid id.
std::int64_t one_integer(IntegerType type, const char* raw) {
  switch (type) {
    case IntegerType::u8: return one_integer<std::uint8_t>(raw);
    case IntegerType::i8: return one_integer<std::int8_t>(raw);
    case IntegerType::u16: return one_integer<std::uint16_t>(raw);
    case IntegerType::i16: return one_integer<std::int16_t>(raw);
    case IntegerType::u32: return one_integer<std::uint32_t>(raw);
    case IntegerType::i32: return one_integer<std::int32_t>(raw);
    case IntegerType::i64: return one_integer<std::int64_t>(raw);
  }
  return 0;
}

class IntegerFile : public TokenSource {
 public:
  IntegerFile(InputFile file, std::int64_t offset, IntegerType type, std::int64_t count,
              std::int64_t vocabulary)
      : file_(std::move(file)),
        offset_(offset),
        type_(type),
        count_(count),
        vocabulary_(vocabulary) {}

  [[nodiscard]] std::int64_t count() const override { return count_; }
  [[nodiscard]] Status read(std::int64_t begin, std::int64_t end,
                            std::int32_t* out) const override {
    EXPECTS(0 <= begin && begin <= end && end <= count_, "tokens within the source");
    const std::int64_t size = bytes_of(type_);
    std::vector<char> raw(static_cast<std::size_t>((end - begin) * size));
    const Status read =
        file_.read(offset_ + begin * size, static_cast<std::int64_t>(raw.size()), raw.data());
    if (!read) return read;
    const std::optional<std::int64_t> bad =
        to_int32(type_, raw.data(), end - begin, vocabulary_, out);
    if (!bad) return Done{};
    return input_error(file_.path(),
                       fmt::format("the token at position {} is {}", begin + *bad,
                                   one_integer(type_, raw.data() + *bad * size)),
                       fmt::format("ids of the model's vocabulary, 0 to {}", vocabulary_ - 1),
                       "the data were made with another tokenizer");
  }

 private:
  InputFile file_;
  std::int64_t offset_;
  IntegerType type_;
  std::int64_t count_;
  std::int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<TokenSource> integer_tokens(InputFile file, std::int64_t offset, IntegerType type,
                                            std::int64_t count, std::int64_t vocabulary) {
  EXPECTS(offset + count * bytes_of(type) <= file.size(), "integers end within their file");
  return std::make_unique<IntegerFile>(std::move(file), offset, type, count, vocabulary);
}

}  // namespace echelon
