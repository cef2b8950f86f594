// What is taken of CUDA and given back: events, streams, memory. For the sources of runtime/cuda/
// alone. All are of the calling thread's device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/units.hpp"

namespace echelon::cuda {

struct GiveBack {
  void operator()(CUevent_st* event) const;
  void operator()(CUstream_st* stream) const;
};
using Event = std::unique_ptr<CUevent_st, GiveBack>;
using OwnStream = std::unique_ptr<CUstream_st, GiveBack>;

[[nodiscard]] Event untimed_event();
[[nodiscard]] Event timed_event();
/// `priority`: as cudaStreamCreateWithPriority has it.
[[nodiscard]] OwnStream new_stream(int priority = 0);

/// Whether its stream has passed the event.
[[nodiscard]] bool has_passed(cudaEvent_t event);
/// Whether all that was put on the stream is over.
[[nodiscard]] bool is_idle(cudaStream_t stream);
/// Of events with times that were passed.
[[nodiscard]] Seconds between(cudaEvent_t begin, cudaEvent_t end);

/// Two events, to time what lies between them on a stream.
class EventTimer {
 public:
  void begin(cudaStream_t stream) const;
  void end(cudaStream_t stream) const;
  /// Whether the stream has passed the end.
  [[nodiscard]] bool over() const { return has_passed(end_.get()); }
  [[nodiscard]] Seconds time() const;  ///< waits for the end

 private:
  Event begin_ = timed_event();
  Event end_ = timed_event();
};

/// Memory of the device, or pinned memory of the host.
class Room {
 public:
  enum class Where : std::uint8_t { device, pinned };
  /// Not there when there is not so much.
  explicit Room(std::int64_t bytes, Where where = Where::device);
  /// Throws RunFailure (out_of_memory) then; `what` it is for.
  [[nodiscard]] static Room demanded(std::int64_t bytes, Where where, const char* what);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  Room(Room&& other) noexcept : at_(other.at_), where_(other.where_) { other.at_ = nullptr; }
  Room& operator=(Room&&) = delete;
  [[nodiscard]] bool there() const { return at_ != nullptr; }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(at_);
  }

 private:
  void* at_ = nullptr;
  Where where_;
};

/// Zeroes, and waits until they are there.
void clear(const Room& room, std::int64_t bytes, cudaStream_t stream);

/// Of so many bytes on the device, zeroed; none where not all find room.
[[nodiscard]] std::vector<Room> cleared_rooms(std::span<const std::int64_t> sizes,
                                              cudaStream_t stream);

/// By whom it was taken does not show.
struct DeviceMemory {
  Bytes free;
  Bytes taken;
};
[[nodiscard]] DeviceMemory memory_of_device();

}  // namespace echelon::cuda
