#include "planner/explain/scaling.hpp"

#include <set>

#include "planner/economics.hpp"
#include "planner/search/optimize.hpp"
#include "planner/space/constraints_of_plan.hpp"

namespace echelon {
namespace {

constexpr double kMillion = 1e6;

Delivered delivered(const PlanRequest& request, const Candidate& candidate) {
  const Economics money = economics_of(request, candidate.prediction.time.step);
  const double share = kMillion / request.job.tokens_per_step();
  Delivered out{candidate, candidate.prediction.tokens_per_second, money.gpu_time * share};
  if (const auto price = request.cluster.price_per_gpu_hour()) {
    out.per_million = *price * (out.gpu_time / Seconds{3600});
  }
  return out;
}

void free_data_parallel(PlanConstraints& constraints) {
  constraints
      .release<&ParallelPlan::dp, &ParallelPlan::shard_group, &ParallelPlan::microbatch_group>();
}

}  // namespace

std::vector<int> scaling_counts(const ClusterTopology& cluster, int most) {
  std::set<int> counts{cluster.gpus()};
  const int node = cluster.node().gpus;
  for (int gpus = 1; gpus < node && gpus <= most; gpus *= 2) counts.insert(gpus);
  for (std::int64_t gpus = node; gpus <= most; gpus *= 2) counts.insert(static_cast<int>(gpus));
  std::erase_if(counts, [&](int gpus) { return !cluster.resized(gpus); });
  return {counts.begin(), counts.end()};
}

ScalingPoint scaling_point(const PlanRequest& request, const ParallelPlan& plan, int gpus,
                           const Progress& progress) {
  ScalingPoint point;
  point.gpus = gpus;
  const Result<ClusterTopology> cluster = request.cluster.resized(gpus);
  if (!cluster) {
    point.why_none = cluster.error().message();
    return point;
  }
  PlanRequest sized = request;
  sized.cluster = *cluster;
  sized.max_gpus.reset();
  sized.top = 1;
  free_data_parallel(sized.constraints);
  const Result<SearchResult> choice = optimize(sized, progress);
  if (!choice)
    point.why_none = choice.error().message();
  else if (const Candidate* winner = choice->report.fitting_winner())
    point.best = delivered(sized, *winner);
  else
    point.why_none = "nothing fits";
  sized.constraints = pinned_to(plan);
  free_data_parallel(sized.constraints);
  const Result<Candidate> same = predict(sized);
  if (same && same->fits) point.same = delivered(sized, *same);
  return point;
}

double ideal_rate(const std::vector<ScalingPoint>& points, int gpus) {
  for (const ScalingPoint& point : points) {
    if (point.best) return point.best->tokens_per_second / point.gpus * gpus;
  }
  return 0;
}

}  // namespace echelon
