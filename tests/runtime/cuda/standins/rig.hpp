// Shared by the tests of the stand-ins.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/cuda/kernels/common.cuh"
#include "tests/runtime/cuda/standins/settings.hpp"
#include "tests/support/catch.hpp"

namespace echelon::standins {

inline constexpr Order kOrders[] = {Order::random, Order::newest_first, Order::starve_one,
                                    Order::eager};

/// A machine with a seed and an order.
inline void start(std::uint64_t seed, Order order) {
  Settings settings;
  settings.seed = seed;
  settings.order = order;
  start(settings);
}

/// The fault that a call reports; empty if there is none.
template <class Call>
std::string complaint(const Call& call) {
  try {
    call();
  } catch (const emulation::Fault& fault) {
    return fault.what();
  }
  return "";
}
inline bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

/// Throws, so that concurrent threads may call it; CHECK is not thread-safe.
inline void expect(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}
inline void expect(cudaError_t error) { expect(error == cudaSuccess, cudaGetErrorString(error)); }

inline cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
inline cudaEvent_t new_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  expect(cudaEventCreateWithFlags(&event, flags));
  return event;
}
template <class T>
T* on_the_device(std::size_t count) {
  T* memory = nullptr;
  expect(cudaMalloc(&memory, count * sizeof(T)));
  return memory;
}
template <class T>
T* pinned(std::size_t count) {
  T* memory = nullptr;
  expect(cudaMallocHost(&memory, count * sizeof(T)));
  return memory;
}
/// Through a stream of its own, at once.
template <class T>
T* on_the_device(const std::vector<T>& values) {
  T* const from = pinned<T>(values.size());
  std::copy(values.begin(), values.end(), from);
  T* const to = on_the_device<T>(values.size());
  cudaStream_t const stream = new_stream();
  cudaMemcpyAsync(to, from, values.size() * sizeof(T), cudaMemcpyHostToDevice, stream);
  expect(cudaStreamSynchronize(stream));
  cudaStreamDestroy(stream);
  cudaFreeHost(from);
  return to;
}
template <class T>
std::vector<T> content(const T* memory, std::size_t count) {
  return {memory, memory + count};  // memory of an emulated device is host memory
}

/// x = a·x + b; with a = 0 x is not read.
inline __global__ void affine_kernel(float* x, float a, float b) {
  if (threadIdx.x == 0) *x = a == 0 ? b : a * *x + b;
}
inline void affine(cudaStream_t stream, float* x, float a, float b) {
  cuda::launch<affine_kernel>(stream, dim3(1), dim3(32), 0, x, a, b);
}

}  // namespace echelon::standins
