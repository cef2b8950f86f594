// Every operation of a communicator on seeded numbers, with what must come out, for any backend.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/expects.hpp"
#include "runtime/communicator.hpp"
#include "tests/support/numbers.hpp"

namespace echelon {

using Raw = std::vector<std::byte>;

inline constexpr Element kElements[] = {Element::f32, Element::f64, Element::bf16, Element::i32};

/// The input of a member: numbers whose sum depends on the order in which they are added.
inline Raw numbers_of(int member, std::int64_t count, Element element, std::uint64_t seed) {
  Raw bytes(static_cast<std::size_t>(count * bytes_of(element)));
  Numbers numbers(seed * 1000 + static_cast<std::uint64_t>(member));
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = numbers.between(-1, 1) * (1 << numbers.below(12));
    std::byte* to = bytes.data() + i * bytes_of(element);
    const auto put = [&](auto number) { std::memcpy(to, &number, sizeof number); };
    switch (element) {
      case Element::f32: put(static_cast<float>(value)); break;
      case Element::f64: put(value); break;
      case Element::bf16: put(Bfloat16(static_cast<float>(value))); break;
      case Element::i32: put(static_cast<std::int32_t>(value * 1e5)); break;
    }
  }
  return bytes;
}

/// What one member held after each operation, one behind the other.
inline Raw all_operations(Communicator& line, std::int64_t count, Element element,
                          std::uint64_t seed) {
  const int n = line.size();
  const std::int64_t width = bytes_of(element);
  Raw all;
  const auto keep = [&](const Raw& more) { all.insert(all.end(), more.begin(), more.end()); };
  const auto own = [&](std::int64_t length) {
    return numbers_of(line.rank(), length, element, seed);
  };
  for (const Reduction how : {Reduction::sum, Reduction::max}) {
    Raw data = own(count);
    line.all_reduce(data.data(), count, element, how);
    keep(data);
  }
  Raw part(static_cast<std::size_t>(count * width));
  const Raw whole = own(count * n);
  line.reduce_scatter(whole.data(), part.data(), count, element);
  keep(part);
  Raw in_place = own(count * n);
  std::byte* mine = in_place.data() + line.rank() * count * width;
  line.reduce_scatter(in_place.data(), mine, count, element);
  keep({mine, mine + count * width});
  Raw gathered(whole.size());
  const Raw piece = own(count);
  line.all_gather(piece.data(), gathered.data(), count, element);
  keep(gathered);
  in_place = own(count * n);
  mine = in_place.data() + line.rank() * count * width;
  line.all_gather(mine, in_place.data(), count, element);
  keep(in_place);
  for (int root = 0; root < n; ++root) {
    Raw data = own(count);
    line.broadcast(data.data(), count, element, root);
    keep(data);
  }
  // Round a ring, then from everybody to member 0.
  if (n > 1) {
    const int next = (line.rank() + 1) % n;
    const int previous = (line.rank() + n - 1) % n;
    Raw got(part.size());
    if (line.rank() % 2 == 0) line.send(piece.data(), count, element, next);
    line.receive(got.data(), count, element, previous);
    if (line.rank() % 2 != 0) line.send(piece.data(), count, element, next);
    keep(got);
    for (int from = 1; from < n; ++from) {
      if (line.rank() == from) line.send(piece.data(), count, element, 0);
      if (line.rank() == 0) {
        line.receive(got.data(), count, element, from);
        keep(got);
      }
    }
  }
  line.barrier();
  return all;
}

}  // namespace echelon
