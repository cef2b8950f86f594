// What CUDA says of the GPUs of this computer.
#pragma once

#include "core/run/measurements.hpp"

namespace echelon::cuda {

/// Of one of `gpus`. What is measured (context, communicator) and NCCL's version stay 0.
[[nodiscard]] GpuFacts facts_of_gpus(int gpus, int device = 0);

}  // namespace echelon::cuda
