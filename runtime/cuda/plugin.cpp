// What plan-run looks for in the plugin (runtime/cuda_plugin.hpp).
#include <string>
#include <utility>

#include "runtime/cuda/backend.hpp"
#include "runtime/cuda/gpus.hpp"
#include "runtime/cuda/measure.hpp"
#include "runtime/cuda_plugin.hpp"

extern "C" {

const char* echelon_cuda_identity() {
  static const std::string identity = echelon::build_identity();
  return identity.c_str();
}

void echelon_cuda_open(echelon::Crew& crew, std::unique_ptr<echelon::World>& host,
                       const echelon::PlanFile& plan,
                       echelon::Result<std::unique_ptr<echelon::Backend<echelon::Bfloat16>>>& out) {
  out = echelon::cuda::open_backend(crew, std::move(host), plan);
}

void echelon_cuda_measure(const echelon::Telling& tell,
                          echelon::Result<echelon::Measurements>& out) {
  const echelon::Result<int> gpus = echelon::cuda::count_gpus();
  if (!gpus) {
    out = gpus.error();
    return;
  }
  out = echelon::cuda::measure(*gpus, echelon::cuda::usual_sizes(), tell);
}
}
