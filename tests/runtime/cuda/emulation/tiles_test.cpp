// Operations of a warp on tiles, as the kernels use them, against plain loops.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/cuda/kernels/attention.cuh"
#include "tests/runtime/cuda/kernels/memory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

namespace echelon::cuda {
namespace {

using device::Memory;
constexpr int kWide = 64;

__device__ HeadRows<const __nv_bfloat16> rows_of(const __nv_bfloat16* x) {
  return {x, kWide, kTileRows};
}

/// scores = a · bᵀ, then product = scores · c; each of four warps has 16 rows.
__global__ void both_products(const __nv_bfloat16* a, const __nv_bfloat16* b,
                              const __nv_bfloat16* c, float* scores, float* product) {
  SharedMemory shared;
  const auto left = allocate_tile<kWide>(shared);
  const auto right = allocate_tile<kWide>(shared);
  const auto across = allocate_tile<kWide>(shared);
  fetch<kWide, true>(left, rows_of(a));
  fetch<kWide, true>(right, rows_of(b));
  fetch<kWide, true>(across, rows_of(c));
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  const int first = warp_index() * kWarpRows;
  const Scores some = multiply_rows<kWide>(left, first, right);
  Rows<kWide> rows;
  multiply_scores(rows, some, across);
  for (int column = 0; column < kTileRows / 8; ++column) {
    for (int i = 0; i < 4; ++i) {
      const int at = (first + row_of(i)) * kTileRows + column_of(column, i);
      scores[at] = some.sums[column].at[i];
      product[at] = rows.sums[column].at[i];
    }
  }
}

/// −1, 0 and 1: products and their sums are exact, and scores stay exact as bf16.
std::vector<float> small_integers(std::uint64_t seed) {
  Numbers numbers(seed);
  std::vector<float> x;
  for (int i = 0; i < kTileRows * kWide; ++i) x.push_back(static_cast<float>(numbers.upto(2) - 1));
  return x;
}

std::vector<__nv_bfloat16> narrowed(const std::vector<float>& x) {
  std::vector<__nv_bfloat16> y;
  for (const float value : x) y.push_back(__float2bfloat16_rn(value));
  return y;
}

TEST_CASE("products of emulated tiles agree with plain loops") {
  const auto a = small_integers(131);
  const auto b = small_integers(132);
  const auto c = small_integers(133);
  Memory<__nv_bfloat16> left(narrowed(a)), right(narrowed(b)), across(narrowed(c));
  Memory<float> scores(a.size()), product(a.size());
  launch<both_products>(nullptr, dim3(1), dim3(kAttentionThreads), 3 * kTileBytes<kWide>,
                        left.data(), right.data(), across.data(), scores.data(), product.data());
  const auto index = [](int row, int column) {
    return static_cast<std::size_t>(row * kWide + column);
  };
  std::vector<float> expected_scores(a.size());
  std::vector<float> expected(a.size());
  for (int row = 0; row < kTileRows; ++row) {
    for (int column = 0; column < kTileRows; ++column) {
      for (int k = 0; k < kWide; ++k) {
        expected_scores[index(row, column)] += a[index(row, k)] * b[index(column, k)];
      }
    }
    for (int column = 0; column < kWide; ++column) {
      for (int k = 0; k < kTileRows; ++k) {
        expected[index(row, column)] += expected_scores[index(row, k)] * c[index(k, column)];
      }
    }
  }
  CHECK(scores.content() == expected_scores);
  CHECK(product.content() == expected);
}

enum class Waits { all, one_group, none };

/// Two groups of copies, of which the second is read.
template <Waits waits, bool reads>
__global__ void copy_twice(const __nv_bfloat16* from) {
  SharedMemory shared;
  const TwoTiles<kWide> tiles(shared);
  fetch<kWide, true>(tiles.of(0), rows_of(from));
  commit_copies();
  fetch<kWide, true>(tiles.of(1), rows_of(from));
  commit_copies();
  if constexpr (waits == Waits::all) wait_copies<0>();
  if constexpr (waits == Waits::one_group) wait_copies<1>();
  __syncthreads();
  std::uint32_t some[4];
  tiles.of(0).load_a(some, 0, 0);
  if constexpr (reads) tiles.of(1).load_a(some, 0, 0);
  if constexpr (waits == Waits::one_group) wait_copies<0>();
}

template <auto kernel>
std::string wrong_with_copies() {
  Memory<__nv_bfloat16> from(narrowed(small_integers(134)));
  try {
    launch<kernel>(nullptr, dim3(1), dim3(kAttentionThreads), 2 * kTileBytes<kWide>, from.data());
  } catch (const emulation::Fault& fault) {
    return fault.what();
  }
  return "";
}

TEST_CASE("emulated asynchronous copies arrive at their wait and not before") {
  CHECK(wrong_with_copies<copy_twice<Waits::all, true>>().empty());
  CHECK(wrong_with_copies<copy_twice<Waits::one_group, false>>().empty());
  const auto reads_early = wrong_with_copies<copy_twice<Waits::one_group, true>>();
  CHECK(reads_early.find("has not reached") != std::string::npos);
  CHECK_FALSE(wrong_with_copies<copy_twice<Waits::none, false>>().empty());
}

/// A tile is overwritten by a copy while other warps may still read it.
template <bool waits>
__global__ void fetch_over(const __nv_bfloat16* from) {
  SharedMemory shared;
  const auto tile = allocate_tile<kWide>(shared);
  for (int step = 0; step < 2; ++step) {
    fetch<kWide, true>(tile, rows_of(from));
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    std::uint32_t some[4];
    tile.load_a(some, 0, 0);
    if (waits) __syncthreads();
  }
}

TEST_CASE("an emulated copy into memory that others still read is an error") {
  CHECK(wrong_with_copies<fetch_over<true>>().empty());
  const auto wrong = wrong_with_copies<fetch_over<false>>();
  CHECK(wrong.find("writes shared memory read by") != std::string::npos);
}

}  // namespace
}  // namespace echelon::cuda
