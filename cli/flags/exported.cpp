#include "cli/flags/exported.hpp"

#include "costmodel/calibration/calibration_io.hpp"

namespace echelon::cli {

RunConfig run_of(const PlanRequest& request, const ParallelPlan& plan) {
  RunConfig run;
  run.model = request.model;
  run.model_name = request.model.name;
  run.framework = request.framework.name;
  run.sequence = request.job.sequence;
  run.global_batch = request.job.global_batch;
  run.precision = request.job.precision.name;
  run.flash_attention = request.job.flash_attention;
  run.layer_code = name_of(request.job.layer_code);
  run.packed_documents = request.job.documents.has_value();
  if (request.job.adapters) run.adapters = request.job.adapters->text();
  if (request.job.quantized_weights) run.quantized = request.job.quantized_weights->text();
  run.gpus = static_cast<int>(request.cluster.gpus());
  run.gpus_per_node = request.cluster.gpus_per_node();
  run.compute_capability = request.cluster.gpu().compute_capability;
  // Source: the device plugins of Kubernetes, NVIDIA's and ROCm's.
  if (gpu_family(request.cluster.gpu()).starts_with("cdna")) run.gpu_resource = "amd.com/gpu";
  run.plan = plan;
  return run;
}

}  // namespace echelon::cli
