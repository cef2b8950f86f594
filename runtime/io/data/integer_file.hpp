// Tokens stored in a file as plain integers behind a header; and Megatron's index of such a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/io/data/tokens.hpp"
#include "runtime/io/input_file.hpp"

namespace echelon {

enum class IntegerType : std::uint8_t { u8, i8, u16, i16, u32, i32, i64 };
[[nodiscard]] constexpr std::int64_t bytes_of(IntegerType type) {
  switch (type) {
    case IntegerType::u8:
    case IntegerType::i8: return 1;
    case IntegerType::u16:
    case IntegerType::i16: return 2;
    case IntegerType::u32:
    case IntegerType::i32: return 4;
    case IntegerType::i64: return 8;
  }
  return 0;
}

/// Little-endian integers from byte `offset` on; they end within the file.
[[nodiscard]] std::unique_ptr<TokenSource> integer_tokens(InputFile file, std::int64_t offset,
                                                          IntegerType type, std::int64_t count,
                                                          std::int64_t vocabulary);

/// NAME.bin as described by NAME.idx, all documents concatenated. Errors: another format or
/// version, tokens that are not integers, an index that contradicts itself or the length of
/// NAME.bin. Source: Megatron-Core, megatron/core/datasets/indexed_dataset.py.
[[nodiscard]] Result<std::unique_ptr<TokenSource>> open_megatron(const std::string& stem,
                                                                 std::int64_t vocabulary);

}  // namespace echelon
