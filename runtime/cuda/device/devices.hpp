// Properties of this computer's GPUs as CUDA reports them.
#pragma once

#include <string>

#include "core/run/measurements.hpp"

namespace echelon::cuda {

/// Properties of one of `gpus`. Measured ones (context, communicator) and NCCL's version stay 0.
[[nodiscard]] GpuFacts facts_of_gpus(int gpus, int device = 0);

/// As CUDA writes versions: 13000 is "13.0".
[[nodiscard]] std::string version_text(int version);

}  // namespace echelon::cuda
