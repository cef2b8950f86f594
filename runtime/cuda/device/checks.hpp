// Errors of CUDA and cuBLASLt calls. Only for the sources of runtime/cuda/.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <initializer_list>
#include <string_view>

namespace echelon::cuda {

/// Throws RunFailure with the call and CUDA's reason: out_of_memory, environment if the GPU or its
/// driver is at fault, else defect. cuBLASLt's failures have CUDA's reason if CUDA fails too.
/// `what`: "copy to the GPU".
void check(cudaError_t status, const char* what);
void check(cublasStatus_t status, const char* what);

enum class OrFolder { no, yes };
/// The value of an environment variable: one of `allowed`, a folder's absolute path if that is
/// allowed too, or nothing if it is empty or not set. Throws RunFailure (input) for anything else.
[[nodiscard]] std::string_view chosen_by(const char* variable,
                                         std::initializer_list<std::string_view> allowed,
                                         OrFolder or_folder = OrFolder::no);

/// The device of the calling thread.
void use_device(int device);

}  // namespace echelon::cuda
