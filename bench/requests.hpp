// Requests that the benchmarks share.
#pragma once

#include <algorithm>

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "planner/space/request.hpp"

namespace echelon {

/// `model` on `gpus` of a cluster with a batch of 4 Mi tokens and no constraints.
inline PlanRequest request_for(const char* model, int gpus, const char* cluster = "dgx-h100") {
  PlanRequest r{.model = load_model(model).value(),
                .job = {},
                .cluster = ClusterTopology::load(cluster, gpus).value(),
                .framework = find_framework("megatron-core").value(),
                .calibration = {},
                .constraints = {}};
  r.job.sequence = std::min(r.model.max_positions, 8192);
  r.job.global_batch = (4 << 20) / r.job.sequence;
  r.job.precision = find_precision("bf16").value();
  r.calibration = pick_calibration(r.cluster.gpu(), r.framework).value();
  return r;
}

}  // namespace echelon
