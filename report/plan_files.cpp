#include "report/plan_files.hpp"

#include <fmt/format.h>

#include "core/base/compressed_text.hpp"
#include "core/base/content_hash.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/schedule/lower_plan.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

Prediction prediction_of(const Candidate& candidate) {
  const PlanCosts& p = candidate.prediction;
  return {.evidence = p.evidence,
          .fits = candidate.fits,
          .fits_probability = candidate.score.fits_probability,
          .capacity = p.memory.capacity,
          .peak = p.memory.peak,
          .peak_reserved = p.memory.peak_reserved,
          .stages = p.memory.stages,
          .time = p.time.parts,
          .stage_times = p.time.stages,
          .closed_form = p.time.closed_form,
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
          .framework = request.framework.name,
          .calibration = request.calibration.name,
          .calibration_path = provenance.calibration_path,
          .keep_free = request.keep_free,
          .max_memory = request.max_memory,
          .assumptions = {},
          .cluster_hash = {},
          .calibration_hash = {},
          .plan = candidate.plan,
          .predicted = prediction_of(candidate),
          .program = {}};
}

std::string hash_of(const ClusterTopology& cluster) {
  return content_hash(canonical_json(cluster.machine()));
}

std::string hash_of(const Calibration& calibration) {
  return content_hash(calibration_to_json(calibration));
}

Result<PlanFile> complete_plan_file(const PlanRequest& request, const Candidate& candidate,
                                    const Provenance& provenance) {
  // About 100 bytes of text and 500 of memory each while it is lowered.
  constexpr double kMostInstructions = 2.5e6;
  const CostModel cost_model(request.model, request.job, request.cluster, request.framework,
                             request.calibration);
  const double instructions = instructions_of(cost_model, candidate.plan);
  if (instructions > kMostInstructions) {
    return input_error("--output", fmt::format("a step of about {:.2g} instructions", instructions),
                       fmt::format("at most {:.2g}", kMostInstructions),
                       "a larger --microbatch or fewer --vpp make fewer");
  }
  PlanFile file = plan_file_of(request, candidate, provenance);
  file.assumptions = request.assumptions;
  file.cluster_hash = hash_of(request.cluster);
  file.calibration_hash = hash_of(request.calibration);
  file.program =
      to_text(schedule_of(cost_model, candidate.plan, candidate.prediction.memory.contents));
  EXPECTS(static_cast<std::int64_t>(file.program.size()) <= kMaxTextBytes,
          "the bound on instructions bounds the text");
  return file;
}

}  // namespace echelon
