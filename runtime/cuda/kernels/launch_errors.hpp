// The errors of launches by a host thread. CUDA reports a refused launch to the launching call and
// keeps it as the thread's last error, which any later query of a pending event replaces.
#pragma once

#include <cuda_runtime.h>

namespace echelon::cuda {

/// Of the calling thread: the first since take_launch_error().
inline thread_local constinit cudaError_t first_launch_error = cudaSuccess;

inline void note_launch(cudaError_t status) {
  if (first_launch_error == cudaSuccess) first_launch_error = status;
}

/// The first error of a launch by this thread since the last call, else CUDA's last error; clears
/// both.
[[nodiscard]] inline cudaError_t take_launch_error() {
  const cudaError_t last = cudaGetLastError();
  const cudaError_t first = first_launch_error;
  first_launch_error = cudaSuccess;
  return first == cudaSuccess ? last : first;
}

}  // namespace echelon::cuda
