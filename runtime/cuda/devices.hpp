// The GPUs of this computer, and what CUDA says of them.
#pragma once

#include "core/measurements.hpp"
#include "core/result.hpp"

namespace echelon::cuda {

/// How many there are. Error (environment): there is no driver, one that is too old, or no GPU.
[[nodiscard]] Result<int> usable_gpus();

/// Of the first one. What is measured (context, communicator) and NCCL's version stay 0.
[[nodiscard]] GpuFacts facts_of_gpus(int gpus);

/// Memory of the calling thread's device that is taken, by whomever.
[[nodiscard]] Bytes taken_memory();

}  // namespace echelon::cuda
