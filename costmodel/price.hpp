// Pricing: memory of every stage and every part of the step time of one plan, in closed form.
#pragma once

#include <string>
#include <vector>

#include "core/calibration.hpp"
#include "core/cost.hpp"
#include "core/job.hpp"
#include "core/model.hpp"
#include "core/parallel_plan.hpp"
#include "costmodel/operators.hpp"
#include "costmodel/stack.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// Memory of all stages of a plan.
struct MemoryPrediction {
  std::vector<MemoryBreakdown> stages;
  Bytes capacity;          ///< of the GPU
  Bytes peak;              ///< largest total over the stages
  Bytes peak_reserved;     ///< … with the caching allocator's reserve on top
  Bytes allocator_reserve; ///< that reserve, on the stage with the largest reserved peak
  int tightest_stage = 0;
  /// What frameworks count against their own allocator on the tightest stage (no context, no NCCL).
  Bytes peak_allocated;
};

/// Time of one optimizer step.
struct TimePrediction {
  CostBreakdown parts;
  Seconds step;   ///< = parts.total()
  Seconds low;    ///< 80 % band
  Seconds high;
  double bubble_share() const { return parts.bubble / step; }
};

struct Prediction {
  MemoryPrediction memory;
  TimePrediction time;
  Evidence evidence = Evidence::extrapolated;
  double tokens_per_second = 0;
  FlopsPerSecond model_flops_per_gpu;  ///< 6N + 12LhT formula, ModelSpec::flops_per_token
  double mfu = 0;                      ///< of the dense peak of the compute dtype
};

/// What depends only on the cut (tp, cp, microbatch, sequence parallel): computed once per cut, used
/// by all plans that share it. Times are per layer and microbatch on one rank.
struct CutCosts {
  struct Pass {
    Seconds device;   ///< kernels
    Seconds exposed;  ///< tensor-parallel collectives the compute queue waits on
  };
  Cut cut;
  Pass layer_forward, layer_backward;
  Pass selective;            ///< extra work of selective recomputation in the backward pass
  Pass embedding_forward, embedding_backward;
  Pass head_forward, head_backward;
  Bytes layer_saved;         ///< activations of one layer, nothing recomputed
  Bytes layer_saved_selective;
  Bytes layer_input;         ///< what full recomputation keeps
  Bytes layer_transient;
  Bytes embedding_saved;     ///< dropout mask
  Bytes head_saved;
  Bytes head_transient;
  double layer_parameters = 0;  ///< per rank
  double embedding_parameters = 0;
  double head_parameters = 0;   ///< pp = 1 (a tied head costs nothing)
  double head_parameters_last = 0;  ///< pp > 1 (a tied head is a second copy)
  Bytes boundary;            ///< activation sent to the next stage
};

/// Prices plans of one (model, job, cluster, stack, calibration). Pure: same arguments, same result.
/// Plans must be legal (planner/legality.hpp); illegal ones are a programming error.
class Pricer {
 public:
  Pricer(const ModelSpec& model, const TrainingJob& job, const ClusterTopology& cluster,
         const Stack& stack, const Calibration& calibration);

  [[nodiscard]] CutCosts cut_costs(Cut cut) const;
  [[nodiscard]] Prediction price(const ParallelPlan& plan) const;
  /// The same into `out` (its vectors are reused): what the search calls. `costs` must belong to the
  /// plan's cut.
  void price(const ParallelPlan& plan, const CutCosts& costs, Prediction& out) const;
  /// Memory only, the cheap first half of a price.
  void price_memory(const ParallelPlan& plan, const CutCosts& costs, MemoryPrediction& out) const;

  [[nodiscard]] const ModelSpec& model() const { return model_; }
  [[nodiscard]] const TrainingJob& job() const { return job_; }
  [[nodiscard]] const ClusterTopology& cluster() const { return cluster_; }
  [[nodiscard]] const Stack& stack() const { return stack_; }
  [[nodiscard]] const Calibration& calibration() const { return calibration_; }

 private:
  void price_time(const ParallelPlan& plan, const CutCosts& costs, TimePrediction& out) const;
  ModelSpec model_;
  TrainingJob job_;
  ClusterTopology cluster_;
  Stack stack_;
  Calibration calibration_;
};

/// Microbatches whose activations one stage holds at its peak, in units of one chunk
/// (= layers/(pp·vpp) layers): 1F1B min(m, pp − s); GPipe m; interleaved
/// min(m·v, 2(pp − s − 1) + (v − 1)·pp + 1).
/// Source: Megatron-LM schedules.py (warm-up counts); Korthikanti et al. (arXiv 2205.05198) sec. 4.
[[nodiscard]] std::int64_t chunks_in_flight(ScheduleKind schedule, int pp, int vpp, int stage,
                                            std::int64_t microbatches);

/// Time of the pipeline of one step when stage s takes `stage[s]` per microbatch (all chunks) and
/// `hop` is one exposed boundary message:
///   1F1B, GPipe   Σ t + (m − 1)·max t + hops        exact for equal stages: (m + p − 1)·t
///   interleaved   m·max t + (Σ t − max t)/v + hops  exact for equal stages when p divides m
/// Source: Narayanan et al. (arXiv 2104.04473) section 2.2; Alpa (arXiv 2201.12023) eq. 2.
[[nodiscard]] Seconds pipeline_time(ScheduleKind schedule, std::span<const Seconds> stage, int vpp,
                                    std::int64_t microbatches, Seconds hop);

}  // namespace echelon
