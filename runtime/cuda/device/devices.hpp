// Properties of this computer's GPUs as CUDA reports them.
#pragma once

#include "core/run/measurements.hpp"

namespace echelon::cuda {

/// Properties of one of `gpus`. Measured ones (context, communicator) and NCCL's version stay 0.
[[nodiscard]] GpuFacts facts_of_gpus(int gpus, int device = 0);

}  // namespace echelon::cuda
