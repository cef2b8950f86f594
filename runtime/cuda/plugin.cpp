// The functions that plan-run looks up in the plugin (runtime/backend/cuda_plugin.hpp).
#include <cstdlib>
#include <string>
#include <utility>

#include "runtime/backend/cuda_plugin.hpp"
#include "runtime/cuda/backend.hpp"
#include "runtime/cuda/device/gpus.hpp"
#include "runtime/cuda/measure/measure.hpp"

namespace {

/// A rank has more streams than the 8 that reach the GPU without waiting for each other by default.
/// Read at CUDA's first call. Source: CUDA C++ Programming Guide, CUDA_DEVICE_MAX_CONNECTIONS.
void separate_streams() { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

}  // namespace

extern "C" {

const char* echelon_cuda_identity() {
  static const std::string identity = echelon::build_identity();
  return identity.c_str();
}

void echelon_cuda_open(echelon::RunThreads& run_threads, std::unique_ptr<echelon::World>& host,
                       const echelon::PlanFile& plan,
                       echelon::Result<std::unique_ptr<echelon::Backend<echelon::Bfloat16>>>& out) {
  separate_streams();
  out = echelon::cuda::open_backend(run_threads, std::move(host), plan);
}

void echelon_cuda_measure(const echelon::LogLine& log,
                          echelon::Result<echelon::Measurements>& out) {
  separate_streams();
  const echelon::Result<int> gpus = echelon::cuda::count_gpus();
  if (!gpus) {
    out = gpus.error();
    return;
  }
  out = echelon::cuda::measure(*gpus, echelon::cuda::usual_sizes(), log);
}
}
