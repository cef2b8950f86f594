#include "runtime/cuda/device/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "runtime/threads/failure.hpp"

namespace echelon::cuda {

namespace {

/// Errors of the GPU, its links or its driver, not of the program: another process on that GPU
/// would meet them too, and a launcher should take the node out of service.
/// Source: driver_types.h of CUDA, comments on cudaError.
bool is_of_the_device(cudaError_t status) {
  constexpr int kContained = 226;  // cudaErrorContained, of NVLink or memory; CUDA 12.0 has none
  if (status == kContained) return true;
  switch (status) {
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch: return true;
    default: return false;
  }
}

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::string text = fmt::format("{}: CUDA says {} ({})", what, cudaGetErrorString(status),
                                 cudaGetErrorName(status));
  if (status == cudaErrorMemoryAllocation) throw RunFailure(RunFailure::Kind::out_of_memory, text);
  if (!is_of_the_device(status)) throw RunFailure(RunFailure::Kind::defect, text);
  throw RunFailure(RunFailure::Kind::environment,
                   text + "; the GPU or its driver is at fault: take this node out of service");
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  // A GPU that broke: cuBLASLt then merely fails to execute, and any call of CUDA says why.
  check(cudaFree(nullptr), what);
  throw RunFailure(RunFailure::Kind::defect, fmt::format("{}: cuBLASLt answers with status {}",
                                                         what, static_cast<int>(status)));
}

std::string_view chosen_by(const char* variable, std::initializer_list<std::string_view> allowed,
                           OrFolder or_folder) {
  const char* given = std::getenv(variable);
  const std::string_view found = given == nullptr ? "" : given;
  const bool folder = or_folder == OrFolder::yes;
  if (found.empty() || std::find(allowed.begin(), allowed.end(), found) != allowed.end() ||
      (folder && found.starts_with('/'))) {
    return found;
  }
  throw RunFailure(
      RunFailure::Kind::input,
      fmt::format("{}: found '{}', expected {}{}", variable, found, fmt::join(allowed, " or "),
                  folder ? " or the absolute path of a folder" : ""));
}

void use_device(int device) { check(cudaSetDevice(device), "choose the GPU"); }

}  // namespace echelon::cuda
