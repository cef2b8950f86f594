#include "tests/runtime/cuda/standins/allocations.hpp"

#include <algorithm>
#include <vector>

#include "tests/runtime/cuda/standins/graphs.hpp"
#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {
namespace {

constexpr std::size_t kGuardBytes = 512;
// cudaMalloc() aligns to at least 256 bytes (CUDA C++ Programming Guide, "Size and Alignment
// Requirement"); used memory of a device is counted in multiples of these.
constexpr std::size_t kAlignment = 256;
constexpr unsigned char kPoisonByte = 0xff;  // as numbers, NaN

std::string owner_of(int device) {
  return device == kPinned ? "pinned memory" : "memory of device " + std::to_string(device);
}

std::size_t rounded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Allocations& allocations() {
  static Allocations one;
  return one;
}

void* Allocations::allocate(std::size_t bytes, int device) {
  if (device != kPinned) {
    const std::size_t largest = machine().settings().device_bytes;
    if (bytes > largest || used(device) + rounded(bytes) > largest) return nullptr;
  }
  Allocation made;
  const std::size_t all = rounded(bytes) + 2 * kGuardBytes + kAlignment;
  made.memory.reset(new unsigned char[all]);
  std::fill_n(made.memory.get(), all, kPoisonByte);
  made.bytes = bytes;
  made.location = {device, ++made_};
  const std::uintptr_t first =
      rounded(reinterpret_cast<std::uintptr_t>(made.memory.get())) + kGuardBytes;
  all_.emplace(first, std::move(made));
  return reinterpret_cast<void*>(first);
}

std::optional<std::string> Allocations::release(void* memory, bool pinned) {
  const auto at = all_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (at == all_.end()) return "memory is freed that was not allocated, or freed before";
  if ((at->second.location.device == kPinned) != pinned) {
    return "memory is freed that is " + owner_of(at->second.location.device);
  }
  const auto* first = static_cast<const unsigned char*>(memory);
  const auto poison = [](unsigned char byte) { return byte == kPoisonByte; };
  const bool whole =
      std::all_of(first - kGuardBytes, first, poison) &&
      std::all_of(first + at->second.bytes, first + at->second.bytes + kGuardBytes, poison);
  const std::size_t bytes = at->second.bytes;
  all_.erase(at);
  if (!whole) return "something wrote outside an allocation of " + std::to_string(bytes) + " bytes";
  return std::nullopt;
}

/// The last allocation that begins at the address or before.
Allocations::All::const_iterator Allocations::holder(const void* memory) const {
  auto at = all_.upper_bound(reinterpret_cast<std::uintptr_t>(memory));
  return at == all_.begin() ? all_.end() : --at;
}

std::optional<Location> Allocations::find(const void* memory, std::size_t bytes) const {
  const auto at = holder(memory);
  if (at == all_.end()) return std::nullopt;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(memory) - at->first;
  const std::size_t size = at->second.bytes;
  if (offset > size || bytes > size - offset) return std::nullopt;
  return at->second.location;
}

std::optional<std::string> Allocations::wrong(const void* memory, std::size_t bytes, int device,
                                              bool or_pinned) const {
  const auto found = find(memory, bytes);
  if (found) {
    if (found->device == device || (or_pinned && found->device == kPinned)) return std::nullopt;
    return "device " + std::to_string(device) + " uses " + owner_of(found->device);
  }
  const auto at = holder(memory);
  std::string text = std::to_string(bytes) + " bytes outside a live allocation";
  if (at != all_.end()) {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(memory) - at->first;
    if (offset <= at->second.bytes + kGuardBytes) {
      text += ", from byte " + std::to_string(offset) + " of " + std::to_string(at->second.bytes);
    }
  }
  return text;
}

std::size_t Allocations::used(int device) const {
  std::size_t sum = 0;
  for (const auto& [first, one] : all_) {
    if (one.location.device == device) sum += rounded(one.bytes);
  }
  return sum;
}

std::string Allocations::left() const {
  std::string text;
  for (const auto& [first, one] : all_) {
    text += (text.empty() ? "" : "; ") + std::to_string(one.bytes) + " bytes of " +
            owner_of(one.location.device);
  }
  return text;
}

bool overlap(const void* one, std::size_t one_bytes, const void* other, std::size_t other_bytes) {
  const auto* const first = static_cast<const char*>(one);
  const auto* const second = static_cast<const char*>(other);
  return first < second + other_bytes && second < first + one_bytes;
}

void check_operand(const std::string& who, const void* memory, std::size_t bytes, int device,
                   bool or_pinned) {
  if (const auto wrong = allocations().wrong(memory, bytes, device, or_pinned)) {
    machine().complain(who + ": " + *wrong);
  }
}

namespace {

cudaError_t give(void** to, std::size_t bytes, int device) {
  const Machine::Lock lock;
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (to == nullptr) return failed(cudaErrorInvalidValue);
  *to = nullptr;
  if (bytes == 0) return cudaSuccess;
  *to = allocations().allocate(bytes, device);
  return *to == nullptr ? failed(cudaErrorMemoryAllocation) : cudaSuccess;
}

/// cudaFree() waits for the work in the device's streams. cudaFreeHost() is not documented to wait:
/// an operation that still uses the memory is detected when it runs.
cudaError_t take_back(void* memory, bool pinned) {
  if (memory == nullptr) return machine().broken ? failed(cudaErrorECCUncorrectable) : cudaSuccess;
  Machine::Lock lock;
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  const auto where = allocations().find(memory, 0);
  cudaError_t waited = cudaSuccess;
  if (where && !pinned) {
    waited = machine().wait(
        lock, all_over(where->device), [] { return "freeing memory"; }, true);
  }
  if (const auto wrong = allocations().release(memory, pinned)) {
    return machine().blame(*wrong, cudaErrorInvalidValue);
  }
  return waited;
}

}  // namespace
}  // namespace echelon::standins

using echelon::standins::allocations;
using echelon::standins::failed;
using echelon::standins::kPinned;
using echelon::standins::Machine;
using echelon::standins::machine;

cudaError_t cudaMalloc(void** devPtr, std::size_t size) {
  return echelon::standins::give(devPtr, size, echelon::standins::this_thread().device);
}
cudaError_t cudaMallocHost(void** ptr, std::size_t size) {
  return echelon::standins::give(ptr, size, kPinned);
}
cudaError_t cudaHostAlloc(void** pHost, std::size_t size, unsigned int flags) {
  if ((flags & ~unsigned{cudaHostAllocPortable}) != 0) return failed(cudaErrorNotSupported);
  return echelon::standins::give(pHost, size, kPinned);
}
cudaError_t cudaFree(void* devPtr) { return echelon::standins::take_back(devPtr, false); }
cudaError_t cudaFreeHost(void* ptr) { return echelon::standins::take_back(ptr, true); }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Machine::Lock lock;
  *total = machine().settings().device_bytes;
  const int device = echelon::standins::this_thread().device;
  *free = *total - allocations().used(device) - machine().graph_bytes[device];
  return cudaSuccess;
}
