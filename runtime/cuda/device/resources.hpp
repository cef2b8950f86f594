// CUDA resources with ownership: events, streams, memory. Only for the sources of runtime/cuda/.
// All belong to the calling thread's device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/units.hpp"

namespace echelon::cuda {

struct Release {
  void operator()(CUevent_st* event) const;
  void operator()(CUstream_st* stream) const;
};
using Event = std::unique_ptr<CUevent_st, Release>;
using OwnStream = std::unique_ptr<CUstream_st, Release>;

[[nodiscard]] Event untimed_event();
[[nodiscard]] Event timed_event();
/// `priority`: as cudaStreamCreateWithPriority has it.
[[nodiscard]] OwnStream new_stream(int priority = 0);

/// Whether its stream has passed the event.
[[nodiscard]] bool has_passed(cudaEvent_t event);
/// Whether all work on the stream is complete.
[[nodiscard]] bool is_idle(cudaStream_t stream);
/// Of events with times that were passed.
[[nodiscard]] Seconds between(cudaEvent_t begin, cudaEvent_t end);

/// Two events that time the work between them on a stream.
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
class DeviceBuffer {
 public:
  enum class Where : std::uint8_t { device, pinned };
  /// Not allocated() if the memory is exhausted.
  explicit DeviceBuffer(std::int64_t bytes, Where where = Where::device);
  /// Throws RunFailure (out_of_memory) instead; `what` names the purpose.
  [[nodiscard]] static DeviceBuffer required(std::int64_t bytes, Where where, const char* what);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceBuffer(DeviceBuffer&& other) noexcept : at_(other.at_), where_(other.where_) {
    other.at_ = nullptr;
  }
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  [[nodiscard]] bool allocated() const { return at_ != nullptr; }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(at_);
  }

 private:
  void* at_ = nullptr;
  Where where_;
};

/// Zeroes the buffer and waits for completion.
void clear(const DeviceBuffer& buffer, std::int64_t bytes, cudaStream_t stream);

/// Fills the buffer with `count` numbers in [-1, 1), in fp32 if `wide`, else in bf16: products of
/// zeros draw less power, and so run faster. Waits for completion.
/// Source: thonking.ai, "Strangely, Matrix Multiplications on GPUs Run Faster When Given
/// Predictable Data" (A100: 258 TFLOP/s on random numbers, 295 on zeros).
void fill(const DeviceBuffer& buffer, std::int64_t count, bool wide, cudaStream_t stream);

/// Zeroed device buffers of these sizes; none if not all fit.
[[nodiscard]] std::vector<DeviceBuffer> zeroed_buffers(std::span<const std::int64_t> sizes,
                                                       cudaStream_t stream);

/// Used by any process.
struct DeviceMemory {
  Bytes free;
  Bytes used;
};
[[nodiscard]] DeviceMemory memory_of_device();

}  // namespace echelon::cuda
