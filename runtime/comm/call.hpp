// Group and Call: the members of a communication and the request of one member, with their
// descriptions for messages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon {

/// Members are numbers 0..size()-1; messages speak of global ranks.
struct Group {
  std::string name;        ///< "tp"
  std::vector<int> ranks;  ///< global, in member order
  bool operator==(const Group&) const = default;
  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  [[nodiscard]] int rank(int member) const { return ranks[static_cast<std::size_t>(member)]; }
};
/// "tp group of ranks {0,1}"
[[nodiscard]] std::string describe(const Group& group);

enum class Operation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  barrier,
  send,
  receive,
};

struct Call {
  Operation operation = Operation::barrier;
  Element element = Element::f32;
  Reduction how = Reduction::sum;
  /// Member: root of a broadcast, the other side of a send or receive; all_to_all: the number of
  /// parts of each member.
  int other = 0;
  std::int64_t count = 0;  ///< all_to_all: what the member sends
  bool operator==(const Call&) const = default;
  [[nodiscard]] bool is_collective() const { return operation < Operation::send; }
  [[nodiscard]] std::int64_t bytes() const { return count * bytes_of(element); }
};

/// The parts of an all_to_all, of one member; none in other calls. Elements, of member m's part p
/// of k at m·k + p; the counts are the caller's memory.
struct PartCounts {
  std::span<const std::int64_t> to;
  std::span<const std::int64_t> from;
  std::vector<std::int64_t> to_first;    ///< where they begin in what is sent
  std::vector<std::int64_t> from_first;  ///< and in what is received
  [[nodiscard]] static PartCounts of(const ExchangeParts& to, const ExchangeParts& from,
                                     int members);
  [[nodiscard]] bool empty() const;
};
/// Of a member that takes part in an all_to_all.
[[nodiscard]] Call call_of(const PartCounts& parts, Element element, int members);

/// "all_reduce of 64 f32", "send of 5 f32 to rank 2"
[[nodiscard]] std::string describe(const Group& group, const Call& call);
/// Description of a wait: "barrier in the tp group of ranks {0,1,2} waits for rank 1 2"
[[nodiscard]] std::string describe_wait(const Group& group, const Call& call,
                                        const std::vector<int>& missing);

/// Error if these two members are in these calls at the same time: they would wait for each other
/// forever or disagree on the data. Nothing if one may still reach the other's call. "tp group of
/// ranks {0,1}: rank 0 calls all_reduce of 64 f32, rank 1 all_gather of 32 f32"
[[nodiscard]] std::optional<RunFailure> disagreement(const Group& group, int member,
                                                     const Call& call, int other,
                                                     const Call& others);
/// Of matching calls: error if one member sends the other another number of elements than that
/// expects. "tp group of ranks {0,1}: in an all_to_all of f32 rank 0 sends 5 to rank 1, which
/// expects 4"
[[nodiscard]] std::optional<RunFailure> disagreement(const Group& group, Element element, int from,
                                                     std::int64_t sent, int to,
                                                     std::int64_t expected);
/// The same of both directions.
[[nodiscard]] std::optional<RunFailure> disagreement(const Group& group, Element element,
                                                     int member, const PartCounts& parts, int other,
                                                     const PartCounts& others);

}  // namespace echelon
