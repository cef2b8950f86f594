#include "runtime/cuda/devices.hpp"

#include <cublasLt.h>

#include "runtime/cuda/checks.hpp"

namespace echelon::cuda {
namespace {

int attribute(cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, 0), "ask for a property of the GPU");
  return value;
}

}  // namespace

GpuFacts facts_of_gpus(int gpus) {
  GpuFacts facts;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "ask for the properties of the GPU");
  facts.name = properties.name;
  facts.gpus = gpus;
  facts.memory = Bytes{static_cast<double>(properties.totalGlobalMem)};
  facts.sms = properties.multiProcessorCount;
  facts.compute_capability = properties.major + 0.1 * properties.minor;
  facts.l2 = Bytes{static_cast<double>(properties.l2CacheSize)};
  constexpr double kKilohertz = 1e-3;  // in MHz
  facts.clock_mhz = kKilohertz * attribute(cudaDevAttrClockRate);
  facts.memory_clock_mhz = kKilohertz * attribute(cudaDevAttrMemoryClockRate);
  facts.memory_bits = attribute(cudaDevAttrGlobalMemoryBusWidth);
  check(cudaDriverGetVersion(&facts.driver), "ask for the driver's version");
  check(cudaRuntimeGetVersion(&facts.runtime), "ask for CUDA's version");
  facts.cublas = static_cast<int>(cublasLtGetVersion());
  return facts;
}

Bytes taken_memory() {
  std::size_t free = 0;
  std::size_t all = 0;
  check(cudaMemGetInfo(&free, &all), "ask for free memory");
  return Bytes{static_cast<double>(all - free)};
}

}  // namespace echelon::cuda
