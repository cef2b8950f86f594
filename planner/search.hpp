// The search: every legal tuple priced and ranked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "costmodel/price.hpp"
#include "planner/legality.hpp"
#include "planner/request.hpp"

namespace echelon {

struct Candidate {
  ParallelPlan plan;
  Prediction prediction;
  bool fits = false;
};

/// Tuples of one rejection reason.
struct RejectionCount {
  RejectionReason reason{};
  std::int64_t count = 0;
  std::string nearest;  ///< detail of the tuple that came closest (memory) or was met first
};

/// A plan that would have been right but for one thing.
struct NearMiss {
  Candidate candidate;
  int stage = 0;
  Bytes missing;      ///< reserved peak minus usable memory on that stage
  std::string fix;    ///< the single change that makes it fit: "128 GPUs instead of 64", ...
};

struct SearchCounts {
  std::int64_t tuples = 0;       ///< enumerated, legal or not
  std::int64_t priced = 0;       ///< complete predictions
  std::int64_t too_large = 0;    ///< did not fit
};

struct PlanReport {
  std::vector<Candidate> candidates;  ///< best first, at most request.top; the winner is [0]
  std::vector<Candidate> pareto;      ///< no other plan is both faster and smaller; fastest first
  std::vector<RejectionCount> rejected;
  std::vector<NearMiss> near_misses;  ///< filled when nothing fits, closest first
  SearchCounts counts;
  bool exhaustive = true;             ///< every tuple of the declared space was priced

  [[nodiscard]] const Candidate* winner() const {
    return candidates.empty() ? nullptr : &candidates.front();
  }
};

/// Called now and then with the share done in [0, 1]; return false to stop early.
using Progress = std::function<bool(double)>;

/// Searches all (tp, pp, vpp, dp, microbatch, ZeRO, sequence parallel, recompute) tuples the
/// constraints leave open. Deterministic; ties broken by memory, then by the tuple itself.
/// Error when the constraints contradict each other or leave no legal tuple (each reason named).
[[nodiscard]] Result<PlanReport> search(const PlanRequest& request, const Progress& progress = {});

/// The plan the request's constraints describe, priced.
[[nodiscard]] Result<Candidate> predict(const PlanRequest& request);

}  // namespace echelon
