// Llama 2 7B on eight nodes of H100 under a framework, by priors alone: single terms of its stages.
#pragma once

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {

struct TermCase {
  ModelSpec model = load_model("7b").value();
  ClusterTopology cluster = ClusterTopology::load("dgx-h100", 64).value();
  Framework framework;
  TrainingJob job;
  Calibration calibration;

  explicit TermCase(const char* name, const char* precision = "bf16")
      : framework(find_framework(name).value()) {
    job.sequence = 2048;
    job.global_batch = 512;
    job.precision = find_precision(precision).value();
    calibration = prior_calibration(cluster.gpu(), framework).value();
  }
  [[nodiscard]] CostModel cost_model() const {
    return {model, job, cluster, framework, calibration};
  }
  [[nodiscard]] ParallelPlan plan(int tp, int pp, int zero) const {
    ParallelPlan p;
    p.tp = tp;
    p.pp = pp;
    p.dp = cluster.gpus() / (tp * pp);
    p.zero = zero;
    p.shard_group = p.dp;
    p.layers_per_stage.assign(static_cast<std::size_t>(pp), model.layers / pp);
    p.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
    return p;
  }
};

/// Of the first layers of a plan, without embedding and head.
template <class F>
auto of_stage_model(const TermCase& c, const ParallelPlan& plan, F f) {
  const CostModel cost_model = c.cost_model();
  const ShardingCosts costs = cost_model.sharding_costs(plan);
  return f(StageModel(cost_model, plan, costs), costs);
}

}  // namespace echelon
