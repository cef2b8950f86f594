// Requests used by several planner tests.
#pragma once

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "planner/space/request.hpp"

namespace echelon {

/// `model` on `gpus` of `cluster` with a batch of 4 Mi tokens, nothing pinned.
inline PlanRequest request_for(const char* model, const char* cluster, int gpus,
                               const char* framework_name = "megatron-core") {
  PlanRequest r{.model = load_model(model).value(),
                .job = {},
                .cluster = ClusterTopology::load(cluster, gpus).value(),
                .framework = find_framework(framework_name).value(),
                .calibration = {},
                .constraints = {}};
  r.job.sequence = std::min(r.model.max_positions, 4096);
  r.job.global_batch = (4 << 20) / r.job.sequence;
  r.job.precision = find_precision(r.framework.default_precision).value();
  r.calibration = pick_calibration(r.cluster.gpu(), r.framework).value();
  return r;
}

}  // namespace echelon
