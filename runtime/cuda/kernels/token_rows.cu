#include "runtime/cuda/kernels/token_rows.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace echelon::cuda {
namespace {

constexpr unsigned kBits = 11;
constexpr std::size_t kDigits = 1U << kBits;

}  // namespace

void TokenRows::group(std::span<const std::int32_t> tokens, std::int32_t* out) {
  const std::size_t n = tokens.size();
  const auto token_of = [&](std::int32_t row) { return tokens[static_cast<std::size_t>(row)]; };
  rows_.resize(n);
  others_.resize(n);
  std::iota(rows_.begin(), rows_.end(), 0);
  const auto largest =
      static_cast<unsigned>(n == 0 ? 0 : *std::max_element(tokens.begin(), tokens.end()));
  for (unsigned shift = 0; shift < 32 && largest >> shift != 0; shift += kBits) {
    const auto digit_of = [&](std::int32_t row) {
      return static_cast<unsigned>(token_of(row)) >> shift & (kDigits - 1);
    };
    std::array<std::size_t, kDigits + 1> begins{};
    for (const std::int32_t row : rows_) ++begins[digit_of(row) + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    for (const std::int32_t row : rows_) others_[begins[digit_of(row)]++] = row;
    rows_.swap(others_);
  }
  std::int32_t distinct = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0 && token_of(rows_[i]) == token_of(rows_[i - 1])) continue;
    out[1 + distinct++] = static_cast<std::int32_t>(i);
  }
  out[0] = distinct;
  out[1 + distinct] = static_cast<std::int32_t>(n);
  std::copy(rows_.begin(), rows_.end(), out + n + 2);
}

}  // namespace echelon::cuda
