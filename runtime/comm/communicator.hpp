// Communicator: one member's end of a group of ranks. Backends: threads, messages (MPI, TCP),
// NCCL.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/units.hpp"
#include "runtime/comm/element.hpp"

namespace echelon {

enum class Reduction { sum, max };

/// How the parts of an all_to_all lie in memory: those of a member together, in order, or the first
/// parts of all members together, then their second parts.
enum class PartOrder : std::uint8_t { by_member, by_part };

/// What a member sends to, or gets from, each member. The counts are the caller's memory.
struct ExchangeParts {
  template <std::convertible_to<std::span<const std::int64_t>> Counts>
  ExchangeParts(const Counts& elements,
                PartOrder order = PartOrder::by_member)  // NOLINT: a list of counts
      : counts(elements), order(order) {}
  std::span<const std::int64_t> counts;  ///< elements, of member m's part p of k at m·k + p
  PartOrder order;
};

/// Counts of an all_to_all that sends `count` elements to the next member of a ring and gets as
/// many from the one before.
struct RingCounts {
  RingCounts(int rank, int size, std::int64_t count)
      : to(static_cast<std::size_t>(size)), from(static_cast<std::size_t>(size)) {
    to[static_cast<std::size_t>((rank + 1) % size)] = count;
    from[static_cast<std::size_t>((rank + size - 1) % size)] = count;
  }
  std::vector<std::int64_t> to, from;
};

/// Blocks the calling queue's thread: a queue is the stream. One communicator belongs to one group
/// *and* one queue, so two queues of a rank never share one. Every member calls the same operations
/// in the same order with the same counts (of an all_to_all: matching ones); a backend that can
/// detect a mismatch ends the run with a message that names both calls (RunFailure::defect).
///
/// Sums are taken in the order of members 0..n-1, element by element, in the accumulator type of
/// the element, and rounded once; so all members get the same bits, as threads, as processes, and
/// on a shared GPU. (NCCL has its own order, the same for all members.) Counts are elements, never
/// bytes.
///
/// If queues belong to a device, data are in that device's memory, and a call returns when it is
/// enqueued.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// In place.
  virtual void all_reduce(void* data, std::int64_t count, Element element, Reduction how) = 0;
  /// `in`: size()·count elements; `out`: the sum of everybody's part rank(). They may overlap only
  /// if out is exactly in + rank()·count.
  virtual void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) = 0;
  /// `in`: count elements; `out`: size()·count, by rank. They may overlap only if in is exactly
  /// out + rank()·count.
  virtual void all_gather(const void* in, void* out, std::int64_t count, Element element) = 0;
  /// Members get the parts `to` of `in`, and their parts `from` come to `out`. Part p that i sends
  /// to j is the part p that j expects from i; 0 elements are allowed. All members name the same
  /// number of parts of each. `in` and `out` do not overlap.
  virtual void all_to_all(const void* in, const ExchangeParts& to, void* out,
                          const ExchangeParts& from, Element element) = 0;
  /// The same, begun: its operands are in use until finish_all_to_all, the next call. A backend
  /// that transfers nothing by itself does all of it here.
  virtual void start_all_to_all(const void* in, const ExchangeParts& to, void* out,
                                const ExchangeParts& from, Element element) {
    all_to_all(in, to, out, from, element);
  }
  virtual void finish_all_to_all() {}
  virtual void broadcast(void* data, std::int64_t count, Element element, int root) = 0;
  /// To and from one member; a rendezvous of both sides.
  virtual void send(const void* data, std::int64_t count, Element element, int to) = 0;
  virtual void receive(void* data, std::int64_t count, Element element, int from) = 0;
  virtual void barrier() = 0;

  /// When all members that the last call needed had arrived, by the steady clock: until then the
  /// caller waited for others, afterwards data were transferred. Meaningless in a group of one.
  [[nodiscard]] virtual Seconds transfer_began() const = 0;
};

}  // namespace echelon
