#include "runtime/cuda/device/devices.hpp"

#include <cublasLt.h>
#include <fmt/format.h>

#include "runtime/cuda/device/checks.hpp"

namespace echelon::cuda {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "ask for a property of the GPU");
  return value;
}

}  // namespace

GpuFacts facts_of_gpus(int gpus, int device) {
  GpuFacts facts;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "ask for the properties of the GPU");
  facts.name = properties.name;
  facts.gpus = gpus;
  facts.memory = Bytes{static_cast<double>(properties.totalGlobalMem)};
  facts.sms = properties.multiProcessorCount;
  facts.compute_capability = properties.major + 0.1 * properties.minor;
  facts.l2 = Bytes{static_cast<double>(properties.l2CacheSize)};
  constexpr double kKilohertz = 1e-3;  // in MHz
  facts.clock_mhz = kKilohertz * attribute(cudaDevAttrClockRate, device);
  facts.memory_clock_mhz = kKilohertz * attribute(cudaDevAttrMemoryClockRate, device);
  facts.memory_bits = attribute(cudaDevAttrGlobalMemoryBusWidth, device);
  check(cudaDriverGetVersion(&facts.driver), "ask for the driver's version");
  check(cudaRuntimeGetVersion(&facts.runtime), "ask for CUDA's version");
  facts.cublas = static_cast<int>(cublasLtGetVersion());
  return facts;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace echelon::cuda
