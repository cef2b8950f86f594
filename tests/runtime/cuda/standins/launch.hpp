// The implementation of cuda_runtime.h's launches.
#pragma once

#include <functional>
#include <vector>

#include "tests/runtime/cuda/standins/cuda_runtime_api.h"

namespace echelon::standins {

/// `run`: one thread of the grid, with its own arguments. `pointers`: the pointers among the
/// arguments, which are null or point to memory of the stream's device or to pinned memory. On the
/// null stream the grid runs at once, with any pointers, and only the caller gets a fault.
cudaError_t launch_kernel(const cudaLaunchConfig_t& config, const void* kernel,
                          const std::vector<const void*>& pointers,
                          const std::function<void()>& run);

}  // namespace echelon::standins
