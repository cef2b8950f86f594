// What CUDA says of the GPUs of this computer.
#pragma once

#include "core/measurements.hpp"

namespace echelon::cuda {

/// Of the first one. What is measured (context, communicator) and NCCL's version stay 0.
[[nodiscard]] GpuFacts facts_of_gpus(int gpus);

/// Memory of the calling thread's device that is taken, by whomever.
[[nodiscard]] Bytes taken_memory();

}  // namespace echelon::cuda
