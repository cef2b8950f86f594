#include "planner/search/predict.hpp"

#include "planner/space/plan_from_constraints.hpp"

namespace echelon {

Result<Candidate> predict(const PlanRequest& request) {
  Result<ParallelPlan> plan = plan_from_constraints(request);
  if (!plan) return plan.error();
  const CostModel cost_model(request.model, request.job, request.cluster, request.framework,
                             request.calibration);
  Candidate out;
  out.plan = *std::move(plan);
  out.prediction = cost_model.price(out.plan);
  out.fits = out.prediction.memory.peak_reserved <= request.usable_memory();
  return out;
}

}  // namespace echelon
