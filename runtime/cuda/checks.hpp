// What a CUDA or cuBLASLt call that fails becomes. For the sources of runtime/cuda/ alone.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace echelon::cuda {

/// Throws RunFailure: out_of_memory, or defect with the call and CUDA's reason. `what`: "copy to
/// the GPU".
void check(cudaError_t status, const char* what);
void check(cublasStatus_t status, const char* what);

/// The device of the calling thread.
void use_device(int device);

}  // namespace echelon::cuda
