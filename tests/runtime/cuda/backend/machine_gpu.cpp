#include "tests/runtime/cuda/backend/machine.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string>

#include "tests/support/skip.hpp"

namespace echelon {
namespace {

/// Before main: without a GPU there is nothing to run.
const int kGpus = [] {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return devices;
  skip_as("cuda:backend on a GPU", std::string("no GPU: ") + cudaGetErrorString(status));
  std::exit(0);
}();

}  // namespace

bool start_gpus(int count, std::uint64_t) { return count <= kGpus; }

void end_gpus() {}

}  // namespace echelon
