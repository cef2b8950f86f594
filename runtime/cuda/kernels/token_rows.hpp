// The rows of a batch by token, which the host computes for the embedding's gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace echelon::cuda {

/// Numbers that TokenRows::group() writes for so many rows.
[[nodiscard]] constexpr std::int64_t token_rows_count(std::int64_t rows) { return 2 * rows + 2; }

class TokenRows {
 public:
  /// Writes for n tokens, of which d are distinct:
  ///
  ///   [0]               d
  ///   [1 … d + 1]       where the rows of each distinct token begin, tokens rising; then n
  ///   [n + 2 … 2n + 1]  rows by token; those of one token rise
  ///
  /// A radix sort of 11 bits a pass: two passes for vocabularies up to 4 M.
  /// Time grows with the number of rows, however often a token is among them.
  void group(std::span<const std::int32_t> tokens, std::int32_t* out);

 private:
  std::vector<std::int32_t> rows_, others_;  ///< reused
};

}  // namespace echelon::cuda
