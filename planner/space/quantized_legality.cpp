// Rules of frozen weights in 4 bits (core/plan/quantized_weights.hpp).
#include <fmt/format.h>

#include "planner/space/legality.hpp"

namespace echelon {

namespace {

using enum RejectionReason;
using Found = std::optional<Rejection>;

std::string words_of(const TrainingJob& job) {
  return "weights in " + job.quantized_weights->text();
}

}  // namespace

Found check_quantized_weights(const ModelSpec& model, const TrainingJob& job,
                              const Framework& framework) {
  if (!job.quantized_weights) return {};
  const std::string what = words_of(job);
  if (framework.quantizes_weights.empty()) {
    return Rejection{framework_lacks_feature, fmt::format("{} has no {}", framework.name, what)};
  }
  if (!job.adapters) {
    return Rejection{contradictory, what + " without adapters (LoRA), which alone are trained"};
  }
  if (job.precision.compute != Dtype::bf16 && job.precision.compute != Dtype::fp16) {
    return Rejection{no_price,
                     fmt::format("{} and products in {}", what, name_of(job.precision.compute))};
  }
  if (model.moe.experts > 0) return Rejection{no_price, what + " of experts"};
  if (job.quantized_weights->fp32_states() && framework.casts_parameters) {
    return Rejection{contradictory, fmt::format("{}: {} casts all parameters to {}", what,
                                                framework.name, name_of(job.precision.compute))};
  }
  return {};
}

/// Nothing splits packed weights by rows or columns, and no pipeline takes models of transformers.
/// Source: transformers v5.18, quantizers/quantizer_bnb_4bit.py (no plan of tensor parallelism).
Found check_degrees_of_quantized(const TrainingJob& job, const ParallelPlan& plan) {
  if (!job.quantized_weights) return {};
  if (plan.tp > 1) {
    return Rejection{framework_lacks_feature,
                     words_of(job) + " with tensor parallelism: bitsandbytes does not split them"};
  }
  if (plan.pp > 1) {
    return Rejection{framework_lacks_feature, words_of(job) +
                                                  " with pipeline stages: they are modules of "
                                                  "transformers, which has none"};
  }
  return {};
}

/// Source: bitsandbytes 95f9af30, docs/source/fsdp_qlora.md ("FSDP can only wrap layers and modules
/// that have the same floating data type").
Found check_zero_of_quantized(const TrainingJob& job, const ParallelPlan& plan) {
  if (!job.quantized_weights || !job.quantized_weights->fp32_states() || plan.zero < 2) return {};
  return Rejection{contradictory, fmt::format("{} at ZeRO-{}: FSDP shards parameters of one format",
                                              words_of(job), plan.zero)};
}

/// Source: transformers v5.18, modeling_layers.py, GradientCheckpointingLayer.
Found check_recompute_of_quantized(const TrainingJob& job, const ParallelPlan& plan) {
  const bool whole = plan.recompute == Recompute::none || plan.recompute == Recompute::full;
  if (!job.quantized_weights || whole) return {};
  return Rejection{framework_lacks_feature,
                   fmt::format("{} with recompute {}: transformers recomputes whole layers",
                               words_of(job), name_of(plan.recompute))};
}

}  // namespace echelon
