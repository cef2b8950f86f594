#include "runtime/model/initial.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace echelon {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

std::uint64_t hash_of_name(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

namespace {

/// Elements 2 · pair and 2 · pair + 1.
std::array<double, 2> initial_normals(std::uint64_t seed, std::uint64_t name_hash,
                                      std::uint64_t pair) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); };
  const auto bits =
      philox({low(pair), high(pair), low(name_hash), high(name_hash)}, {low(seed), high(seed)});
  const auto unit = [&](std::size_t i) {
    return static_cast<double>((std::uint64_t{bits[i + 1]} << 32U | bits[i]) >> 11U);
  };
  const double radius = std::sqrt(-2 * std::log((unit(0) + 1) * 0x1p-53));
  const double angle = 2 * std::numbers::pi * (unit(2) * 0x1p-53);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// Elements [first, first + count) of the whole tensor.
template <class T>
void fill_normal(const Parameter& p, std::uint64_t seed, std::uint64_t hash, std::int64_t first,
                 std::int64_t count, T* out) {
  const std::int64_t end = first + count;
  for (std::int64_t even = first / 2 * 2; even < end; even += 2) {
    const auto pair = initial_normals(seed, hash, static_cast<std::uint64_t>(even) / 2);
    const auto put = [&](std::int64_t i, double value) {
      if (i >= first && i < end) out[i - first] = T(static_cast<Wide<T>>(p.deviation * value));
    };
    put(even, pair[0]);
    put(even + 1, pair[1]);
  }
}

constexpr std::int64_t kGrain = 1 << 16;  ///< elements that a thread takes at a time

}  // namespace

double initial_normal(std::uint64_t seed, std::uint64_t name_hash, std::int64_t index) {
  const auto at = static_cast<std::uint64_t>(index);
  return initial_normals(seed, name_hash, at / 2)[at % 2];
}

template <class T>
void fill_initial(const FlatParameters& flat, std::uint64_t seed, std::int64_t begin,
                  std::int64_t end, T* out) {
  std::fill(out, out + (end - begin), T(0));
  for (const Parameter& p : flat.parameters) {
    const std::int64_t from = std::max(begin, p.offset);
    const std::int64_t to = std::min(end, p.offset + p.count());
    if (from >= to || p.fill == Parameter::Fill::zeros) continue;
    const std::uint64_t hash = hash_of_name(p.name);
    const std::int64_t parts = (to - from + kGrain - 1) / kGrain;
#pragma omp parallel for schedule(static) if (parts > 1)
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t first = from + part * kGrain;
      for_each_piece(p, first - p.offset, std::min(to, first + kGrain) - p.offset,
                     [&](std::int64_t global, std::int64_t local, std::int64_t count) {
                       T* const piece = out + (p.offset + local - begin);
                       if (p.fill == Parameter::Fill::ones) {
                         std::fill_n(piece, count, T(1));
                       } else {
                         fill_normal(p, seed, hash, global, count, piece);
                       }
                     });
    }
  }
}

template void fill_initial<double>(const FlatParameters&, std::uint64_t, std::int64_t, std::int64_t,
                                   double*);
template void fill_initial<float>(const FlatParameters&, std::uint64_t, std::int64_t, std::int64_t,
                                  float*);
template void fill_initial<Bfloat16>(const FlatParameters&, std::uint64_t, std::int64_t,
                                     std::int64_t, Bfloat16*);

}  // namespace echelon
