// Initial weights: the same model for every plan, without a broadcast.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "runtime/comm/element.hpp"
#include "runtime/model/parameters.hpp"

namespace echelon {

/// Philox4x32-10: 128 bits that look random, from a counter and a key. Source: Salmon et al.,
/// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3.3.
[[nodiscard]] std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key);

/// Element `index` of the whole tensor `name`, normally distributed with deviation 1:
///   z = √(−2 ln u) · cos(2πv) for even indices, sin for odd ones     (Box-Muller, in double)
/// u in (0, 1], v in [0, 1): 53 bits each of philox(index / 2 and the name's FNV-1a; seed).
/// Checked by: tests/runtime/model/initial_test.cpp.
[[nodiscard]] double initial_normal(std::uint64_t seed, std::uint64_t name_hash,
                                    std::int64_t index);
[[nodiscard]] std::uint64_t hash_of_name(const std::string& name);

/// Elements [begin, end) of the flat, padded parameters, to out[0 ..]. Padding is zero. On the
/// threads that OpenMP allows the calling one: an element takes about 20 ns, a billion 20 s.
template <class T>
void fill_initial(const FlatParameters& flat, std::uint64_t seed, std::int64_t begin,
                  std::int64_t end, T* out);

}  // namespace echelon
