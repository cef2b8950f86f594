// Megatron's NAME.idx: the content of NAME.bin. Layout, little-endian:
//   "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64 document entries,
//   i32 length[sequences], i64 first byte[sequences], i64 document[entries], (i8 mode[sequences])
// Source: Megatron-Core, megatron/core/datasets/indexed_dataset.py (_IndexReader).
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "runtime/io/data/integer_file.hpp"

namespace echelon {
namespace {

constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr std::int64_t kMegatronHeader = 34;  // bytes
constexpr std::int64_t kIndexBlock = 8192;    // entries read at once

std::optional<IntegerType> type_of_code(int code) {
  switch (code) {
    case 1: return IntegerType::u8;
    case 2: return IntegerType::i8;
    case 3: return IntegerType::i16;
    case 4: return IntegerType::i32;
    case 5: return IntegerType::i64;
    case 8: return IntegerType::u16;
    default: return std::nullopt;  // 6 and 7 are floating point
  }
}

struct MegatronHeader {
  IntegerType type = IntegerType::u8;
  std::int64_t sequences = 0;
  std::int64_t documents = 0;
};

Result<MegatronHeader> read_header(const InputFile& index) {
  char raw[kMegatronHeader];
  if (index.size() < kMegatronHeader) {
    return input_error(index.path(), fmt::format("the index has {} bytes", index.size()),
                       fmt::format("a header of {} bytes", kMegatronHeader));
  }
  const Status read = index.read(0, kMegatronHeader, raw);
  if (!read) return read.error();
  if (std::string_view(raw, kMegatronMagic.size()) != kMegatronMagic) {
    return input_error(index.path(), "does not begin with MMIDIDX", "an index written by Megatron");
  }
  const auto number = [&](int at) {
    std::uint64_t value = 0;
    std::memcpy(&value, raw + at, sizeof(value));
    return value;
  };
  if (number(9) != 1) {
    return input_error(index.path(), fmt::format("version {} of the index", number(9)),
                       "version 1");
  }
  const int code = static_cast<unsigned char>(raw[17]);
  const std::optional<IntegerType> type = type_of_code(code);
  if (!type) {
    return input_error(index.path(), fmt::format("tokens of type {}", code),
                       "integers: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16");
  }
  const std::uint64_t sequences = number(18);
  const std::uint64_t documents = number(26);
  const auto size = static_cast<std::uint64_t>(index.size());
  // Each sequence takes at least 12 bytes, so larger counts cannot fit and sums cannot overflow.
  const bool fits = sequences <= size / 12 && documents <= size / 8;
  const std::uint64_t bare = fits ? kMegatronHeader + 12 * sequences + 8 * documents : 0;
  if (!fits || (size != bare && size != bare + sequences)) {
    return input_error(
        index.path(),
        fmt::format("{} sequences and {} document entries in {} bytes", sequences, documents, size),
        "an index as long as its header says", "the file is cut off or damaged");
  }
  return MegatronHeader{*type, static_cast<std::int64_t>(sequences),
                        static_cast<std::int64_t>(documents)};
}

/// Calls check(number, value) for each; it returns false to stop.
template <class T, class Check>
Status for_each_entry(const InputFile& index, std::int64_t offset, std::int64_t count,
                      const Check& check) {
  std::vector<T> block(static_cast<std::size_t>(std::min(count, kIndexBlock)));
  for (std::int64_t first = 0; first < count; first += kIndexBlock) {
    const std::int64_t here = std::min(kIndexBlock, count - first);
    const std::int64_t size = sizeof(T);
    const Status read = index.read(offset + first * size, here * size, block.data());
    if (!read) return read;
    for (std::int64_t i = 0; i < here; ++i) {
      const Status fine = check(first + i, static_cast<std::int64_t>(block[std::size_t(i)]));
      if (!fine) return fine;
    }
  }
  return Done{};
}

/// Tokens of all sequences, which are contiguous; lengths and places are read together in
/// blocks.
Result<std::int64_t> count_tokens(const InputFile& index, const MegatronHeader& header,
                                  std::int64_t limit) {
  const std::int64_t places = kMegatronHeader + 4 * header.sequences;
  const std::int64_t size = bytes_of(header.type);
  std::int64_t tokens = 0;
  std::vector<std::int32_t> lengths;
  for (std::int64_t first = 0; first < header.sequences; first += kIndexBlock) {
    const std::int64_t here = std::min(kIndexBlock, header.sequences - first);
    lengths.resize(static_cast<std::size_t>(here));
    const Status read = index.read(kMegatronHeader + 4 * first, 4 * here, lengths.data());
    if (!read) return read.error();
    const auto check = [&](std::int64_t i, std::int64_t place) -> Status {
      const std::int64_t length = lengths[static_cast<std::size_t>(i)];
      if (place != tokens * size) {
        return input_error(index.path(),
                           fmt::format("sequence {} begins at byte {}", first + i, place),
                           fmt::format("byte {}, behind the one before it", tokens * size));
      }
      if (length < 0 || length > limit - tokens) {
        return input_error(index.path(),
                           fmt::format("sequence {} has {} tokens", first + i, length),
                           fmt::format("at most the {} that are left", limit - tokens),
                           "index and data do not belong together, or one is cut off");
      }
      tokens += length;
      return Done{};
    };
    const Status sound = for_each_entry<std::int64_t>(index, places + 8 * first, here, check);
    if (!sound) return sound.error();
  }
  return tokens;
}

Status check_documents(const InputFile& index, const MegatronHeader& header) {
  std::int64_t before = 0;
  const auto check = [&](std::int64_t i, std::int64_t sequence) -> Status {
    if (sequence < before || sequence > header.sequences) {
      return input_error(index.path(),
                         fmt::format("document {} begins at sequence {}", i, sequence),
                         fmt::format("{} to {}", before, header.sequences));
    }
    before = sequence;
    return Done{};
  };
  return for_each_entry<std::int64_t>(index, kMegatronHeader + 12 * header.sequences,
                                      header.documents, check);
}

}  // namespace

Result<std::unique_ptr<TokenSource>> open_megatron(const std::string& stem,
                                                   std::int64_t vocabulary) {
  const Result<InputFile> index = InputFile::open(stem + ".idx");
  if (!index) return index.error();
  Result<InputFile> data = InputFile::open(stem + ".bin");
  if (!data) return data.error();
  const Result<MegatronHeader> header = read_header(*index);
  if (!header) return header.error();
  const std::int64_t size = bytes_of(header->type);
  const Result<std::int64_t> tokens = count_tokens(*index, *header, data->size() / size);
  if (!tokens) return tokens.error();
  if (*tokens * size != data->size()) {
    return input_error(data->path(), fmt::format("{} bytes", data->size()),
                       fmt::format("{} tokens of {} bytes, as its index says", *tokens, size));
  }
  const Status documents = check_documents(*index, *header);
  if (!documents) return documents.error();
  return integer_tokens(std::move(*data), 0, header->type, *tokens, vocabulary);
}

}  // namespace echelon
