#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "runtime/cuda/kernels/launch_errors.hpp"
#include "tests/runtime/cuda/kernels/memory.hpp"
#include "tests/support/skip.hpp"

namespace echelon::device {
namespace {

void expect(cudaError_t status) {
  if (status != cudaSuccess) FAIL(cudaGetErrorString(status));
}

/// Before main: without a GPU there is nothing to run.
const bool kDevicePresent = [] {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return true;
  skip_as("cuda:kernels on a GPU", std::string("no GPU: ") + cudaGetErrorString(status));
  std::exit(0);
}();

}  // namespace

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  expect(cudaMalloc(&memory, bytes));
  return memory;
}
void release(void* memory) { cudaFree(memory); }
void copy_in(void* to, const void* from, std::size_t bytes) {
  expect(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}
/// Also detects failed launches and failed kernels.
void copy_out(void* to, const void* from, std::size_t bytes) {
  expect(cuda::take_launch_error());
  expect(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

}  // namespace echelon::device
