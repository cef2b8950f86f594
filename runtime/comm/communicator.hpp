// Communicator: one member's end of a group of ranks. Backends: threads, messages (MPI, TCP),
// NCCL.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/units.hpp"
#include "runtime/comm/element.hpp"

namespace echelon {

enum class Reduction { sum, max };

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
  /// Member m gets to[m] elements of `in`, which holds the parts in the order of members, and
  /// from[m] elements of m come to `out`, in the same order. What i sends to j is what j expects
  /// from i; 0 is allowed. `in` and `out` do not overlap.
  virtual void all_to_all(const void* in, std::span<const std::int64_t> to, void* out,
                          std::span<const std::int64_t> from, Element element) = 0;
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
