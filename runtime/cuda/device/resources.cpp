#include "runtime/cuda/device/resources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "runtime/comm/element.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon::cuda {

void Release::operator()(CUevent_st* event) const { static_cast<void>(cudaEventDestroy(event)); }
void Release::operator()(CUstream_st* stream) const {
  static_cast<void>(cudaStreamDestroy(stream));
}

namespace {

Event new_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "make an event");
  return Event(event);
}

/// Result of a query whether work is complete.
bool is_yes(cudaError_t status) {
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // that result also stays as the last error
    return false;
  }
  check(status, "run what is on the GPU");
  return true;
}

}  // namespace

Event untimed_event() { return new_event(cudaEventDisableTiming); }
Event timed_event() { return new_event(cudaEventDefault); }

OwnStream new_stream(int priority) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "make a stream");
  return OwnStream(stream);
}

bool has_passed(cudaEvent_t event) { return is_yes(cudaEventQuery(event)); }
bool is_idle(cudaStream_t stream) { return is_yes(cudaStreamQuery(stream)); }

Seconds between(cudaEvent_t begin, cudaEvent_t end) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "read a time");
  return Seconds{1e-3 * static_cast<double>(milliseconds)};
}

void EventTimer::begin(cudaStream_t stream) const {
  check(cudaEventRecord(begin_.get(), stream), "record an event");
}

void EventTimer::end(cudaStream_t stream) const {
  check(cudaEventRecord(end_.get(), stream), "record an event");
}

Seconds EventTimer::time() const {
  check(cudaEventSynchronize(end_.get()), "time the GPU");
  return between(begin_.get(), end_.get());
}

DeviceBuffer::DeviceBuffer(std::int64_t bytes, Where where) : where_(where) {
  const auto size = static_cast<std::size_t>(bytes);
  const cudaError_t status =
      where == Where::device ? cudaMalloc(&at_, size) : cudaMallocHost(&at_, size);
  if (status == cudaSuccess) return;
  at_ = nullptr;
  static_cast<void>(cudaGetLastError());  // otherwise the next launch would report it
  if (status != cudaErrorMemoryAllocation) check(status, "take memory");
}

DeviceBuffer DeviceBuffer::required(std::int64_t bytes, Where where, const char* what) {
  DeviceBuffer buffer(bytes, where);
  if (!buffer.allocated()) {
    throw RunFailure(RunFailure::Kind::out_of_memory,
                     fmt::format("no {} bytes of {} memory for {}", bytes,
                                 where == Where::device ? "the GPU's" : "pinned", what));
  }
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (at_ == nullptr) return;
  static_cast<void>(where_ == Where::device ? cudaFree(at_) : cudaFreeHost(at_));
}

void clear(const DeviceBuffer& buffer, std::int64_t bytes, cudaStream_t stream) {
  check(cudaMemsetAsync(buffer.as<void>(), 0, static_cast<std::size_t>(bytes), stream),
        "clear memory");
  check(cudaStreamSynchronize(stream), "clear memory");
}

void fill(const DeviceBuffer& buffer, std::int64_t count, bool wide, cudaStream_t stream) {
  constexpr std::int64_t kBlock = 1 << 16;  // bytes
  const std::int64_t width = wide ? bytes_of(Element::f32) : bytes_of(Element::bf16);
  const DeviceBuffer block = DeviceBuffer::required(kBlock, DeviceBuffer::Where::pinned, "numbers");
  std::uint32_t state = 12345;
  for (std::int64_t i = 0; i < kBlock / width; ++i) {
    state = state * 1664525U + 1013904223U;
    const float x = static_cast<float>(state >> 8U) / static_cast<float>(1U << 23U) - 1.0F;
    if (wide) {
      block.as<float>()[i] = x;
    } else {
      block.as<Bfloat16>()[i] = Bfloat16(x);
    }
  }
  const std::int64_t bytes = count * width;
  std::byte* const to = buffer.as<std::byte>();
  check(
      cudaMemcpyAsync(to, block.as<std::byte>(), static_cast<std::size_t>(std::min(kBlock, bytes)),
                      cudaMemcpyHostToDevice, stream),
      "copy numbers to the GPU");
  for (std::int64_t filled = kBlock; filled < bytes; filled *= 2) {
    check(
        cudaMemcpyAsync(to + filled, to, static_cast<std::size_t>(std::min(filled, bytes - filled)),
                        cudaMemcpyDeviceToDevice, stream),
        "copy numbers on the GPU");
  }
  check(cudaStreamSynchronize(stream), "copy numbers to the GPU");
}

std::vector<DeviceBuffer> zeroed_buffers(std::span<const std::int64_t> sizes, cudaStream_t stream) {
  std::vector<DeviceBuffer> buffers;
  for (const std::int64_t bytes : sizes) {
    const DeviceBuffer& buffer = buffers.emplace_back(bytes);
    if (!buffer.allocated()) return {};
    clear(buffer, bytes, stream);
  }
  return buffers;
}

DeviceMemory memory_of_device() {
  std::size_t free = 0;
  std::size_t all = 0;
  check(cudaMemGetInfo(&free, &all), "ask for free memory");
  return {Bytes{static_cast<double>(free)}, Bytes{static_cast<double>(all - free)}};
}

}  // namespace echelon::cuda
