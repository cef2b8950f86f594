#include "planner/explain/plan_detail.hpp"

namespace echelon {
namespace {

CostModel pricer_of(const PlanRequest& request) {
  return {request.model, request.job, request.cluster, request.framework, request.calibration};
}

}  // namespace

std::vector<Bytes> reserved_peaks(const PlanRequest& request, const Candidate& candidate) {
  const CostModel cost_model = pricer_of(request);
  const ShardingCosts costs = cost_model.sharding_costs(candidate.plan);
  const StageModel model(cost_model, candidate.plan, costs);
  std::vector<Bytes> peaks;
  for (const MemoryBreakdown& stage : candidate.prediction.memory.stages) {
    peaks.push_back(model.reserved(stage));
  }
  return peaks;
}

SimulatedStep simulate_plan(const PlanRequest& request, const Candidate& candidate) {
  return simulate_plan(pricer_of(request), candidate.plan, candidate.prediction.memory.contents);
}

double instructions_of(const PlanRequest& request, const Candidate& candidate) {
  return instructions_of(pricer_of(request), candidate.plan);
}

}  // namespace echelon
