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
  Seconds selective;         ///< extra device time of selective recomputation in the backward pass
  Pass embedding_forward, embedding_backward;
  Pass head_forward, head_backward;
  Bytes layer_saved;         ///< activations of one layer, nothing recomputed
  Bytes layer_saved_selective;
  Bytes layer_input;         ///< what full recomputation keeps
  Bytes layer_transient;
  Bytes embedding_saved;     ///< dropout mask
  Bytes head_saved;
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
  /// Time only.
  void price_time(const ParallelPlan& plan, const CutCosts& costs, TimePrediction& out) const;

  [[nodiscard]] const ModelSpec& model() const { return model_; }
  [[nodiscard]] const TrainingJob& job() const { return job_; }
  [[nodiscard]] const ClusterTopology& cluster() const { return cluster_; }
  [[nodiscard]] const Stack& stack() const { return stack_; }
  [[nodiscard]] const Calibration& calibration() const { return calibration_; }

 private:
  ModelSpec model_;
  TrainingJob job_;
  ClusterTopology cluster_;
  Stack stack_;
  Calibration calibration_;
  FlopsPerSecond peak_;      ///< dense peak of the job's dtype
  Flops flops_per_token_;
};

/// The cut a plan uses.
[[nodiscard]] Cut cut_of(const ParallelPlan& plan);

}  // namespace echelon
