// The same job on other numbers of GPUs: the best plan there, and the plan in hand stretched.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace echelon {

/// Throughput and cost of one plan, on the GPUs it was priced on.
struct Delivered {
  Candidate candidate;
  double tokens_per_second = 0;
  Seconds gpu_time;                      ///< paid per million tokens that count
  std::optional<Dollars> per_million{};  ///< … in money, where the price of a GPU is known
};

/// One number of GPUs.
struct ScalingPoint {
  int gpus = 0;
  std::optional<Delivered> best;  ///< by the request's objective
  std::string why_none;           ///< where there is no `best`
  std::optional<Delivered> same;  ///< the plan in hand with another dp; nothing where it is illegal
                                  ///< or does not fit
};

/// 1, 2, 4, ... GPUs inside a node, then 1, 2, 4, ... nodes up to `most`, and the number in hand;
/// ascending, none that the description does not have.
[[nodiscard]] std::vector<int> scaling_counts(const ClusterTopology& cluster, int most);

/// The job of `request` on `gpus` GPUs of its cluster: same batch, same constraints but dp's.
[[nodiscard]] ScalingPoint scaling_point(const PlanRequest& request, const ParallelPlan& plan,
                                         int gpus, const Progress& progress = {});

/// Tokens per second if every GPU delivered what those of the first point with a plan do; 0 without
/// one.
[[nodiscard]] double ideal_rate(const std::vector<ScalingPoint>& points, int gpus);

}  // namespace echelon
