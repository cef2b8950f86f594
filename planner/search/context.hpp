// The context that all steps of one search share, and the buffers that a plan is priced in.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "costmodel/cost_model.hpp"
#include "planner/space/candidates.hpp"

namespace echelon {

struct SearchContext {
  explicit SearchContext(const PlanRequest& asked)
      : request(asked),
        cost_model(asked.model, asked.job, asked.cluster, asked.framework, asked.calibration),
        usable(asked.usable_memory()),
        pinned_counts(asked.constraints
                          .has<&ParallelPlan::recompute_layers, &ParallelPlan::selective_layers>()),
        every_layer(asked.constraints.has<&ParallelPlan::recompute>() && !pinned_counts &&
                    asked.constraints.values().recompute == Recompute::full),
        whole_front(asked.whole_front || asked.objective == Objective::memory_headroom ||
                    asked.exhaustive) {
    const std::vector<RecomputePolicy> all = recompute_values(asked, cost_model);
    for (const bool overlap : {false, true}) {
      for (const CudaGraphs graphs :
           {CudaGraphs::none, CudaGraphs::layers, CudaGraphs::full_iteration}) {
        policies[overlap ? 1 : 0][static_cast<std::size_t>(graphs)] =
            policies_beside(asked, all, overlap, graphs);
      }
    }
  }

  /// What plans of the point may recompute: the last needs least memory, but for the layer that is
  /// recomputed. Empty where the request pins what the point's overlap or graphs exclude.
  [[nodiscard]] const std::vector<RecomputePolicy>& recomputes(const SearchPoint& point) const {
    return policies[point.sharding.overlap_ep ? 1 : 0][static_cast<std::size_t>(point.cuda_graphs)];
  }

  /// Whether plans on so many stages recompute all layers fully or none, never some of them.
  [[nodiscard]] bool all_or_none(int pp) const {
    return every_layer || !request.framework.recomputes_some_layers(pp);
  }

  const PlanRequest& request;
  CostModel cost_model;
  Bytes usable;        ///< memory of a GPU that a plan may reserve
  bool pinned_counts;  ///< the request pins how many layers are recomputed
  bool every_layer;    ///< the request pins that all layers are recomputed
  bool whole_front;    ///< a point that cannot be listed may still be on the front
  /// By overlap of expert communication and CUDA graphs.
  std::array<std::array<std::vector<RecomputePolicy>, 3>, 2> policies;
};

/// What the costs of a sharding depend on: a graph of the whole step fuses the experts' kernels.
struct CostsKey {
  explicit CostsKey(const SearchPoint& point)
      : sharding(point.sharding), whole_step(point.cuda_graphs == CudaGraphs::full_iteration) {}
  LayerSharding sharding;
  bool whole_step;
  auto operator<=>(const CostsKey&) const = default;
};
using CostsOfShardings = std::map<CostsKey, ShardingCosts>;

/// A plan and what was priced of it. Handed down by reference so that its vectors are reused;
/// functions fill what they read.
struct Priced {
  ParallelPlan plan;
  MemoryPrediction memory;
  TimePrediction time;
};

}  // namespace echelon
