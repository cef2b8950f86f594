// What cuda_runtime.h's launches come to.
#pragma once

#include <functional>
#include <vector>

#include "tests/runtime/cuda/standins/cuda_runtime_api.h"

namespace echelon::standins {

/// `run`: one thread of it, with arguments of its own. `pointers`: those among the arguments, which
/// lie in memory of the stream's device or in pinned memory, or are null. On the null stream the
/// grid runs at once, with any pointers, and a fault is nobody else's.
cudaError_t launch_kernel(const cudaLaunchConfig_t& config, const void* kernel,
                          const std::vector<const void*>& pointers,
                          const std::function<void()>& run);

}  // namespace echelon::standins
