#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {

void load_kernels() {
  for (const void* kernel : all_kernels()) {
    cudaFuncAttributes attributes{};
    note_launch(cudaFuncGetAttributes(&attributes, kernel));
  }
}

}  // namespace echelon::cuda
