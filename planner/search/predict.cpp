#include "planner/search/predict.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/search/simulate_step.hpp"
#include "planner/space/plan_from_constraints.hpp"

namespace echelon {
namespace {

constexpr Bytes kMoreThanAny{std::numeric_limits<double>::infinity()};

/// Whether no estimate lets the plan fit: its states and the CUDA context alone, which are counted
/// exactly, are more than the GPU has.
bool cannot_fit(const PlanRequest& request, const MemoryPrediction& memory) {
  return std::ranges::any_of(memory.stages, [&](const MemoryBreakdown& stage) {
    return stage.weights + stage.gradients + stage.optimizer + stage.context > request.capacity();
  });
}

}  // namespace

Candidate candidate_of(const PlanRequest& request, const CostModel& cost_model, ParallelPlan plan) {
  Candidate out;
  out.plan = std::move(plan);
  const ShardingCosts costs = cost_model.sharding_costs(out.plan);
  PlanCosts& prediction = out.prediction;
  cost_model.price_memory(out.plan, costs, prediction.memory);
  MakespanSimulator simulator;
  out.simulated = price_simulated(cost_model, out.plan, costs, prediction.memory.contents,
                                  simulator, prediction.time);
  cost_model.price_throughput(out.plan, prediction);
  const Bytes reserved = prediction.memory.peak_reserved;
  out.fits =
      reserved <= memory_limit(request, std::max(request.least_probability, kLeastProbability));
  const bool cannot = cannot_fit(request, prediction.memory);
  out.score = score_of(request, features_of(request, out.plan), cannot ? kMoreThanAny : reserved);
  return out;
}

std::vector<FrameworkRemark> remarks_of(const PlanRequest& request, const ParallelPlan& plan) {
  return remarks(request.framework, request.model, plan, request.job.precision,
                 request.job.flash_attention, request.cluster.gpu().compute_capability);
}

Result<Candidate> predict(const PlanRequest& request) {
  Result<ParallelPlan> plan = plan_from_constraints(request);
  if (!plan) return plan.error();
  const CostModel cost_model(request.model, request.job, request.cluster, request.framework,
                             request.calibration);
  return candidate_of(request, cost_model, *std::move(plan));
}

}  // namespace echelon
