#include "runtime/cuda/device/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/threads/failure.hpp"

namespace echelon::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const auto kind = status == cudaErrorMemoryAllocation ? RunFailure::Kind::out_of_memory
                                                        : RunFailure::Kind::defect;
  throw RunFailure(kind, fmt::format("{}: CUDA says {} ({})", what, cudaGetErrorString(status),
                                     cudaGetErrorName(status)));
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw RunFailure(RunFailure::Kind::defect, fmt::format("{}: cuBLASLt answers with status {}",
                                                         what, static_cast<int>(status)));
}

std::string_view chosen_by(const char* variable, std::initializer_list<std::string_view> allowed) {
  const char* given = std::getenv(variable);
  const std::string_view found = given == nullptr ? "" : given;
  if (found.empty() || std::find(allowed.begin(), allowed.end(), found) != allowed.end())
    return found;
  throw RunFailure(RunFailure::Kind::input, fmt::format("{}: found '{}', expected {}", variable,
                                                        found, fmt::join(allowed, " or ")));
}

void use_device(int device) { check(cudaSetDevice(device), "choose the GPU"); }

}  // namespace echelon::cuda
