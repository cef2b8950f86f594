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

Economics economics_of(const TrainingJob& job, int gpus, std::optional<Dollars> price_per_gpu_hour,
                       Seconds step) {
  Economics result;
  const auto cost = [&](Seconds time) {
    return *price_per_gpu_hour * (time.in(kSecond) / 3600.0 * gpus);
  };
  if (job.token_budget) result.time_for_budget = step * (*job.token_budget / job.tokens_per_step());
  if (price_per_gpu_hour) {
    result.per_step = cost(step);
    if (result.time_for_budget) result.for_budget = cost(*result.time_for_budget);
  }
  return result;
}

}  // namespace echelon
