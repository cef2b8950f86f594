#include <vector>

#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {
namespace {

std::vector<const void*>& noted_kernels() {
  static std::vector<const void*> all;
  return all;
}

}  // namespace

bool note_kernel(const void* kernel) {
  noted_kernels().push_back(kernel);
  return true;
}

void load_kernels() {
  for (const void* kernel : noted_kernels()) {
    cudaFuncAttributes attributes{};
    cudaFuncGetAttributes(&attributes, kernel);
  }
}

}  // namespace echelon::cuda
