#include <cstring>

#include "tests/runtime/cuda/standins/rig.hpp"

namespace echelon::standins {
namespace {

TEST_CASE("memory of the stand-ins' devices is limited") {
  Settings settings;
  settings.device_bytes = 4096;
  start(settings);
  std::size_t left = 0;
  std::size_t total = 0;
  CHECK(cudaMemGetInfo(&left, &total) == cudaSuccess);
  CHECK((left == 4096 && total == 4096));
  void* first = nullptr;
  void* second = nullptr;
  CHECK(cudaMalloc(&first, 3000) == cudaSuccess);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 256 == 0);
  CHECK(cudaMalloc(&second, 2000) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(cudaMemGetInfo(&left, &total) == cudaSuccess);
  CHECK(left == 4096 - 3072);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK((properties.totalGlobalMem == 4096 && properties.major == 8));
  CHECK(cudaFree(first) == cudaSuccess);
  CHECK(cudaMalloc(&second, 2000) == cudaSuccess);
  CHECK(says(complaint([] { check_nothing_left(); }), "2000 bytes of memory of device 0"));
}

TEST_CASE("stand-ins detect double frees, invalid frees and writes beyond the end") {
  const auto found = [](const auto& use) {
    start(1, Order::random);
    use();
    return complaint([] { check_nothing_left(); });
  };
  CHECK(says(found([] {
               auto* const x = on_the_device<float>(4);
               CHECK(cudaFree(x) == cudaSuccess);
               CHECK(cudaFree(x) == cudaErrorInvalidValue);
             }),
             "freed before"));
  CHECK(says(found([] { cudaFreeHost(on_the_device<float>(4)); }), "memory of device 0"));
  CHECK(says(found([] {
               auto* const x = on_the_device<float>(4);
               x[4] = 0;
               cudaFree(x);
             }),
             "wrote outside an allocation of 16 bytes"));
}

TEST_CASE("freeing memory of a device of the stand-ins waits for its streams") {
  start(1, Order::random);
  cudaStream_t const stream = new_stream();
  auto* const x = on_the_device<float>(1);
  auto* const host = pinned<float>(1);
  affine(stream, x, 0, 3);
  cudaMemcpyAsync(host, x, 4, cudaMemcpyDeviceToHost, stream);
  CHECK(cudaFree(x) == cudaSuccess);
  CHECK(*host == 3);
}

TEST_CASE("stand-ins copy pinned memory and memory of the stream's device, and no other") {
  Settings settings;
  settings.devices = 2;
  start(settings);
  cudaStream_t const stream = new_stream();
  auto* const x = on_the_device<float>(8);
  auto* const y = on_the_device<float>(8);
  auto* const host = pinned<float>(8);
  float pageable[8] = {};
  for (const cudaMemcpyKind kind : {cudaMemcpyHostToDevice, cudaMemcpyDefault}) {
    CHECK(cudaMemcpyAsync(x, pageable, 32, kind, stream) == cudaErrorNotSupported);
  }
  CHECK(cudaMemcpyAsync(pageable, x, 32, cudaMemcpyDeviceToHost, stream) == cudaErrorNotSupported);
  CHECK(cudaMemcpyAsync(x, y, 32, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
  for (int i = 0; i < 8; ++i) host[i] = static_cast<float>(i);
  CHECK(cudaMemcpyAsync(x, host, 32, cudaMemcpyDefault, stream) == cudaSuccess);
  CHECK(cudaMemsetAsync(y, 0, 32, stream) == cudaSuccess);
  CHECK(cudaMemcpy2DAsync(y, 16, x + 2, 16, 8, 2, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
  CHECK(cudaMemcpy2DAsync(y, 4, x, 16, 8, 2, cudaMemcpyDefault, stream) ==
        cudaErrorInvalidPitchValue);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(content(y, 8) == std::vector<float>{2, 3, 0, 0, 6, 7, 0, 0});
  cudaSetDevice(1);
  auto* const elsewhere = on_the_device<float>(8);
  CHECK(
      says(complaint([&] { cudaMemcpyAsync(x, elsewhere, 32, cudaMemcpyDeviceToDevice, stream); }),
           "device 0 uses memory of device 1"));
}

TEST_CASE("stand-ins detect copies and kernels outside of live allocations") {
  const auto found = [](const auto& use) {
    start(1, Order::random);
    auto* const x = on_the_device<float>(8);
    auto* const host = pinned<float>(8);
    cudaStream_t const stream = new_stream();
    return complaint([&] {
      use(x, host, stream);
      cudaStreamSynchronize(stream);
    });
  };
  using Stream = cudaStream_t;
  CHECK(says(found([](float* x, float* host, Stream stream) {
               cudaMemcpyAsync(x + 1, host, 32, cudaMemcpyHostToDevice, stream);
             }),
             "32 bytes outside a live allocation, from byte 4 of 32"));
  CHECK(says(found([](float* x, float*, Stream stream) { cudaMemsetAsync(x, 0, 33, stream); }),
             "outside a live allocation"));
  CHECK(says(found([](float* x, float*, Stream stream) {
               cudaMemcpyAsync(x, x + 2, 16, cudaMemcpyDeviceToDevice, stream);
             }),
             "overlap"));
  CHECK(says(found([](float* x, float*, Stream stream) {
               cudaFree(x);
               affine(stream, x, 1, 0);
             }),
             "affine_kernel: 0 bytes outside a live allocation"));
  CHECK(says(found([](float* x, float* host, Stream stream) {
               cudaMemcpyAsync(x, host, 32, cudaMemcpyHostToDevice, stream);
               cudaFreeHost(host);
             }),
             "a copy of 32 bytes"));
  float pageable = 0;
  CHECK(says(found([&](float*, float*, Stream stream) { affine(stream, &pageable, 1, 0); }),
             "outside a live allocation"));
}

}  // namespace
}  // namespace echelon::standins
