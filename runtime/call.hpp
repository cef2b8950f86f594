// Group and Call: who communicates, and what one member asked for; how both are told to people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/failure.hpp"

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
  broadcast,
  barrier,
  send,
  receive,
};

struct Call {
  Operation operation = Operation::barrier;
  Element element = Element::f32;
  Reduction how = Reduction::sum;
  int other = 0;  ///< member: root of a broadcast, the other side of a send or receive
  std::int64_t count = 0;
  bool operator==(const Call&) const = default;
  [[nodiscard]] bool is_collective() const { return operation < Operation::send; }
  [[nodiscard]] std::int64_t bytes() const { return count * bytes_of(element); }
};
/// "all_reduce of 64 f32", "send of 5 f32 to rank 2"
[[nodiscard]] std::string describe(const Group& group, const Call& call);
/// Of who waits in it, for members: "barrier in the tp group of ranks {0,1,2} waits for rank 1 2"
[[nodiscard]] std::string describe_wait(const Group& group, const Call& call,
                                        const std::vector<int>& missing);

/// What is wrong when these members are in these calls at the same time: they wait for each other
/// and will never meet, or will not agree on the data. Nothing when one may still come to the
/// other. "tp group of ranks {0,1}: rank 0 calls all_reduce of 64 f32, rank 1 all_gather of 32 f32"
[[nodiscard]] std::optional<RunFailure> disagreement(const Group& group, int member,
                                                     const Call& call, int other,
                                                     const Call& others);

}  // namespace echelon
