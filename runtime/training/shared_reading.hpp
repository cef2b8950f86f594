// What several ranks need is read once, by all of them together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/result.hpp"
#include "runtime/comm/communicator.hpp"

namespace echelon {

/// The ranks that hold the same elements of a rank's state, this one among them; in host memory.
struct Replicas {
  Communicator& weights;  ///< of whole weights: all data-parallel ranks
  Communicator& own;      ///< of the part that ZeRO leaves to a rank
  // The same of experts that several ranks share:
  Communicator& expert_weights;  ///< all ranks with the same ones
  Communicator& own_experts;
};

/// Fills `count` elements at `out`, the same for all members, which all call it: each reads a
/// contiguous share, and gathers what the others read, in blocks. `read(first, last, to)` reads
/// elements [first, last). A member whose read fails goes on, so that no other waits for it, and
/// returns the error; the others' elements are then undefined.
/// Checked by: tests/runtime/training/shared_reading_test.cpp.
template <class E>
Status read_together(Communicator& members, std::int64_t count, E* out,
                     const std::function<Status(std::int64_t, std::int64_t, E*)>& read) {
  const std::int64_t n = members.size();
  if (n == 1) return read(0, count, out);
  constexpr std::int64_t kBlockBytes = 4 << 20;  // of all members
  const std::int64_t share = (count + n - 1) / n;
  const std::int64_t longest = std::clamp<std::int64_t>(
      kBlockBytes / static_cast<std::int64_t>(sizeof(E)) / n, 1, std::max<std::int64_t>(share, 1));
  std::vector<E> blocks(static_cast<std::size_t>(n * longest));
  Status fine = Done{};
  for (std::int64_t at = 0; at < share; at += longest) {
    const std::int64_t length = std::min(longest, share - at);
    const auto first = [&](std::int64_t member) { return std::min(count, member * share + at); };
    const auto last = [&](std::int64_t member) { return std::min(count, first(member) + length); };
    const std::int64_t rank = members.rank();
    E* const own = blocks.data() + rank * length;
    if (fine) fine = read(first(rank), last(rank), own);
    members.all_gather(own, blocks.data(), length, Number<E>::kElement);
    for (std::int64_t member = 0; member < n; ++member)
      std::copy_n(blocks.data() + member * length, last(member) - first(member),
                  out + first(member));
  }
  return fine;
}

}  // namespace echelon
