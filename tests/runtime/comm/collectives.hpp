// Every operation of a communicator on seeded numbers, with the expected results, for any backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <vector>

#include "core/base/expects.hpp"
#include "runtime/comm/communicator.hpp"
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
    const auto write = [&](auto number) { std::memcpy(to, &number, sizeof number); };
    switch (element) {
      case Element::f32: write(static_cast<float>(value)); break;
      case Element::f64: write(value); break;
      case Element::bf16: write(Bfloat16(static_cast<float>(value))); break;
      case Element::i32: write(static_cast<std::int32_t>(value * 1e5)); break;
    }
  }
  return bytes;
}

/// The memory of a member's operands. Accesses happen in the order of the calls, but may still be
/// pending when they return.
class Operands {
 public:
  virtual ~Operands() = default;
  /// Memory with these bytes.
  virtual std::byte* place(const Raw& bytes) = 0;
  /// The content is part of the result.
  virtual void keep(const std::byte* at, std::int64_t bytes) = 0;
  /// Overwrites the memory with other values.
  virtual void spoil(std::byte* at, std::int64_t bytes) = 0;
};

class HostOperands final : public Operands {
 public:
  std::byte* place(const Raw& bytes) override { return all_.emplace_back(bytes).data(); }
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

/// Between which members messages travel: all, or the first and each other (a star).
enum class MessagesOf { all, first };

/// Elements that a member sends to another in the second all_to_all, and as part `part` in those of
/// several parts: parts of other sizes, and none.
inline std::int64_t uneven_part(std::int64_t count, int from, int to, int part = 0) {
  return (2 * from + to + part) % 3 * count / 2;
}
constexpr int kPartsOfEach = 3;

/// Keeps a member's memory after each operation, in order. Over 60 lines because every operation
/// has its own case.
inline void all_operations(Communicator& comm, std::int64_t count, Element element,
                           std::uint64_t seed, Operands& operands,
                           MessagesOf messages = MessagesOf::all) {
  const int n = comm.size();
  const std::int64_t bytes = count * bytes_of(element);
  const auto own = [&](std::int64_t length) {
    return operands.place(numbers_of(comm.rank(), length, element, seed));
  };
  const auto empty = [&](std::int64_t size) {
    return operands.place(Raw(static_cast<std::size_t>(size)));
  };
  for (const Reduction how : {Reduction::sum, Reduction::max}) {
    std::byte* data = own(count);
    comm.all_reduce(data, count, element, how);
    operands.keep(data, bytes);
  }
  std::byte* part = empty(bytes);
  std::byte* whole = own(count * n);
  comm.reduce_scatter(whole, part, count, element);
  operands.spoil(whole, n * bytes);
  operands.keep(part, bytes);
  whole = own(count * n);
  std::byte* mine = whole + comm.rank() * bytes;
  comm.reduce_scatter(whole, mine, count, element);
  operands.keep(mine, bytes);
  std::byte* gathered = empty(n * bytes);
  std::byte* piece = own(count);
  comm.all_gather(piece, gathered, count, element);
  operands.spoil(piece, bytes);
  operands.keep(gathered, n * bytes);
  whole = own(count * n);
  mine = whole + comm.rank() * bytes;
  comm.all_gather(mine, whole, count, element);
  operands.keep(whole, n * bytes);
  for (const bool even : {true, false}) {
    std::vector<std::int64_t> to;
    std::vector<std::int64_t> from;
    for (int other = 0; other < n; ++other) {
      to.push_back(even ? count : uneven_part(count, comm.rank(), other));
      from.push_back(even ? count : uneven_part(count, other, comm.rank()));
    }
    const std::int64_t sent = std::accumulate(to.begin(), to.end(), std::int64_t{0});
    const std::int64_t arrived = std::accumulate(from.begin(), from.end(), std::int64_t{0});
    std::byte* out = empty(arrived * bytes_of(element));
    std::byte* in = own(sent);
    if (sent % 2 == 0) {
      comm.all_to_all(in, to, out, from, element);
    } else {
      comm.start_all_to_all(in, to, out, from, element);
      comm.finish_all_to_all();
    }
    operands.spoil(in, sent * bytes_of(element));
    operands.keep(out, arrived * bytes_of(element));
  }
  for (const bool sent_by_part : {false, true}) {
    std::vector<std::int64_t> to;
    std::vector<std::int64_t> from;
    for (int i = 0; i < n * kPartsOfEach; ++i) {
      const int other = i / kPartsOfEach;
      to.push_back(uneven_part(count, comm.rank(), other, i % kPartsOfEach));
      from.push_back(uneven_part(count, other, comm.rank(), i % kPartsOfEach));
    }
    const std::int64_t sent = std::accumulate(to.begin(), to.end(), std::int64_t{0});
    const std::int64_t arrived = std::accumulate(from.begin(), from.end(), std::int64_t{0});
    std::byte* out = empty(arrived * bytes_of(element));
    std::byte* in = own(sent);
    const auto order = [](bool by_part) {
      return by_part ? PartOrder::by_part : PartOrder::by_member;
    };
    comm.all_to_all(in, {to, order(sent_by_part)}, out, {from, order(!sent_by_part)}, element);
    operands.spoil(in, sent * bytes_of(element));
    operands.keep(out, arrived * bytes_of(element));
  }
  for (int root = 0; root < n; ++root) {
    std::byte* data = own(count);
    comm.broadcast(data, count, element, root);
    operands.keep(data, bytes);
    operands.spoil(data, bytes);
  }
  // Round a ring, then from every member to member 0, and back.
  std::byte* got = empty(bytes);
  if (n > 1 && messages == MessagesOf::all) {
    const int next = (comm.rank() + 1) % n;
    const int previous = (comm.rank() + n - 1) % n;
    piece = own(count);
    if (comm.rank() % 2 == 0) comm.send(piece, count, element, next);
    comm.receive(got, count, element, previous);
    if (comm.rank() % 2 != 0) comm.send(piece, count, element, next);
    operands.spoil(piece, bytes);
    operands.keep(got, bytes);
  }
  piece = own(count);
  for (int other = 1; other < n; ++other) {
    if (comm.rank() == other) comm.send(piece, count, element, 0);
    if (comm.rank() == 0) {
      comm.receive(got, count, element, other);
      operands.keep(got, bytes);
      comm.send(got, count, element, other);
    }
    if (comm.rank() == other) comm.receive(got, count, element, 0);
  }
  operands.spoil(piece, bytes);
  if (n > 1) operands.keep(got, bytes);
  comm.barrier();
}

inline Raw all_operations(Communicator& comm, std::int64_t count, Element element,
                          std::uint64_t seed, MessagesOf messages = MessagesOf::all) {
  HostOperands operands;
  all_operations(comm, count, element, seed, operands, messages);
  return operands.kept();
}

}  // namespace echelon
