// Every operation of a communicator on seeded numbers, with what must come out, for any backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "core/base/expects.hpp"
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

/// Where a member's operands lie. What it does to them comes in the order of the calls, but need
/// not be over when they return.
class Room {
 public:
  virtual ~Room() = default;
  /// Memory of the room's, with these bytes.
  virtual std::byte* put(const Raw& bytes) = 0;
  /// What is there is part of the result.
  virtual void keep(const std::byte* at, std::int64_t bytes) = 0;
  /// Something else is written there.
  virtual void spoil(std::byte* at, std::int64_t bytes) = 0;
};

class HostRoom final : public Room {
 public:
  std::byte* put(const Raw& bytes) override { return all_.emplace_back(bytes).data(); }
  void keep(const std::byte* at, std::int64_t bytes) override {
    kept_.insert(kept_.end(), at, at + bytes);
  }
  void spoil(std::byte* at, std::int64_t bytes) override {
    std::fill_n(at, bytes, std::byte{0xff});
  }
  [[nodiscard]] const Raw& kept() const { return kept_; }

 private:
  std::deque<Raw> all_;
  Raw kept_;
};

/// Keeps what one member held after each operation, one behind the other.
inline void all_operations(Communicator& line, std::int64_t count, Element element,
                           std::uint64_t seed, Room& room) {
  const int n = line.size();
  const std::int64_t bytes = count * bytes_of(element);
  const auto own = [&](std::int64_t length) {
    return room.put(numbers_of(line.rank(), length, element, seed));
  };
  const auto empty = [&](std::int64_t size) {
    return room.put(Raw(static_cast<std::size_t>(size)));
  };
  for (const Reduction how : {Reduction::sum, Reduction::max}) {
    std::byte* data = own(count);
    line.all_reduce(data, count, element, how);
    room.keep(data, bytes);
  }
  std::byte* part = empty(bytes);
  std::byte* whole = own(count * n);
  line.reduce_scatter(whole, part, count, element);
  room.spoil(whole, n * bytes);
  room.keep(part, bytes);
  whole = own(count * n);
  std::byte* mine = whole + line.rank() * bytes;
  line.reduce_scatter(whole, mine, count, element);
  room.keep(mine, bytes);
  std::byte* gathered = empty(n * bytes);
  std::byte* piece = own(count);
  line.all_gather(piece, gathered, count, element);
  room.spoil(piece, bytes);
  room.keep(gathered, n * bytes);
  whole = own(count * n);
  mine = whole + line.rank() * bytes;
  line.all_gather(mine, whole, count, element);
  room.keep(whole, n * bytes);
  for (int root = 0; root < n; ++root) {
    std::byte* data = own(count);
    line.broadcast(data, count, element, root);
    room.keep(data, bytes);
    room.spoil(data, bytes);
  }
  // Round a ring, then from everybody to member 0.
  if (n > 1) {
    const int next = (line.rank() + 1) % n;
    const int previous = (line.rank() + n - 1) % n;
    std::byte* got = empty(bytes);
    piece = own(count);
    if (line.rank() % 2 == 0) line.send(piece, count, element, next);
    line.receive(got, count, element, previous);
    if (line.rank() % 2 != 0) line.send(piece, count, element, next);
    room.spoil(piece, bytes);
    room.keep(got, bytes);
    piece = own(count);
    for (int from = 1; from < n; ++from) {
      if (line.rank() == from) line.send(piece, count, element, 0);
      if (line.rank() == 0) {
        line.receive(got, count, element, from);
        room.keep(got, bytes);
      }
    }
    room.spoil(piece, bytes);
  }
  line.barrier();
}

inline Raw all_operations(Communicator& line, std::int64_t count, Element element,
                          std::uint64_t seed) {
  HostRoom room;
  all_operations(line, count, element, seed, room);
  return room.kept();
}

}  // namespace echelon
