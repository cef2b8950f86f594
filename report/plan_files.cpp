#include "report/plan_files.hpp"

namespace echelon {

PredictedCosts costs_of(const Candidate& candidate) {
  const Prediction& p = candidate.prediction;
  return {.evidence = p.evidence,
          .fits = candidate.fits,
          .capacity = p.memory.capacity,
          .peak = p.memory.peak,
          .peak_reserved = p.memory.peak_reserved,
          .stages = p.memory.stages,
          .time = p.time.parts,
          .low = p.time.low,
          .high = p.time.high,
          .tokens_per_second = p.tokens_per_second,
          .model_flops_per_gpu = p.model_flops_per_gpu,
          .mfu = p.mfu};
}

PlanFile plan_file_of(const PlanRequest& request, const Candidate& candidate,
                      const Provenance& provenance) {
  return {.version = provenance.version,
          .model = request.model,
          .job = request.job,
          .cluster = provenance.cluster,
          .gpus = request.cluster.gpus(),
          .stack = request.stack.name,
          .calibration = request.calibration.name,
          .calibration_path = provenance.calibration_path,
          .keep_free = request.keep_free,
          .max_memory = request.max_memory,
          .plan = candidate.plan,
          .predicted = costs_of(candidate)};
}

}  // namespace echelon
