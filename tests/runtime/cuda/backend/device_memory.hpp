// Operands of a member in memory of an emulated GPU: everything goes through the member's stream.
#pragma once

#include <cuda_runtime_api.h>

#include <numeric>
#include <vector>

#include "runtime/comm/call.hpp"
#include "tests/runtime/comm/collectives.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"
#include "tests/support/catch.hpp"

namespace echelon {

inline constexpr standins::Order kOrders[] = {standins::Order::random,
                                              standins::Order::newest_first,
                                              standins::Order::starve_one, standins::Order::eager};

inline standins::Settings settings_of(std::uint64_t seed, standins::Order order, int devices) {
  standins::Settings settings;
  settings.seed = seed;
  settings.order = order;
  settings.devices = devices;
  return settings;
}

inline Group group_of(int members) {
  Group group{"tp", std::vector<int>(static_cast<std::size_t>(members))};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  return group;
}

class DeviceOperands final : public Operands {
 public:
  /// Of the calling thread's device.
  DeviceOperands() { expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~DeviceOperands() override {
    expect(cudaStreamSynchronize(stream_));
    for (void* each : device_) expect(cudaFree(each));
    for (const StagedCopy& each : staged_) expect(cudaFreeHost(each.pinned));
    for (const StagedCopy& each : kept_) expect(cudaFreeHost(each.pinned));
    expect(cudaStreamDestroy(stream_));
  }
  DeviceOperands(const DeviceOperands&) = delete;
  DeviceOperands& operator=(const DeviceOperands&) = delete;

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  std::byte* place(const Raw& bytes) override {
    void* memory = nullptr;
    expect(cudaMalloc(&memory, std::max<std::size_t>(bytes.size(), 1)));
    device_.push_back(memory);
    if (bytes.empty()) return static_cast<std::byte*>(memory);
    staged_.push_back(staging(static_cast<std::int64_t>(bytes.size())));
    std::memcpy(staged_.back().pinned, bytes.data(), bytes.size());
    expect(cudaMemcpyAsync(memory, staged_.back().pinned, bytes.size(), cudaMemcpyHostToDevice,
                           stream_));
    return static_cast<std::byte*>(memory);
  }
  void keep(const std::byte* at, std::int64_t bytes) override {
    if (bytes == 0) return;
    kept_.push_back(staging(bytes));
    expect(cudaMemcpyAsync(kept_.back().pinned, at, static_cast<std::size_t>(bytes),
                           cudaMemcpyDeviceToHost, stream_));
  }
  void spoil(std::byte* at, std::int64_t bytes) override {
    if (bytes > 0) expect(cudaMemsetAsync(at, 0xff, static_cast<std::size_t>(bytes), stream_));
  }
  /// Waits for the stream.
  [[nodiscard]] Raw kept() const {
    expect(cudaStreamSynchronize(stream_));
    Raw all;
    for (const StagedCopy& each : kept_) {
      const auto* first = static_cast<const std::byte*>(each.pinned);
      all.insert(all.end(), first, first + each.bytes);
    }
    return all;
  }

 private:
  struct StagedCopy {
    void* pinned = nullptr;
    std::int64_t bytes = 0;
  };
  static void expect(cudaError_t status) {
    if (status != cudaSuccess) FAIL(cudaGetErrorString(status));
  }
  static StagedCopy staging(std::int64_t bytes) {
    StagedCopy made{nullptr, bytes};
    expect(cudaMallocHost(&made.pinned, static_cast<std::size_t>(bytes)));
    return made;
  }

  cudaStream_t stream_ = nullptr;
  std::vector<void*> device_;
  std::vector<StagedCopy> staged_, kept_;
};

}  // namespace echelon
