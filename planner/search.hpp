// The search: every legal tuple bounded, priced where it can matter, and ranked.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/cost_model.hpp"
#include "planner/legality.hpp"
#include "planner/request.hpp"

namespace echelon {

struct Candidate {
  ParallelPlan plan;
  PlanCosts prediction;
  bool fits = false;
  std::optional<Seconds> simulated_step{};  ///< finalists only: planner/finalists.hpp
};

/// Tuples of one rejection reason.
struct RejectionCount {
  RejectionReason reason{};
  std::int64_t count = 0;
  std::string nearest;  ///< detail of the tuple that came closest (memory) or was met first
};

/// A plan that would have been right but for one thing.
struct NearestInfeasible {
  Candidate candidate;
  int stage = 0;
  Bytes missing;    ///< reserved peak minus usable memory on that stage
  std::string fix;  ///< the single change that makes it fit: "128 GPUs instead of 64", ...
};

/// Every tuple ends in one place: tuples = fitting + too_large + bounded + rejected.
struct SearchCounts {
  std::int64_t tuples = 0;     ///< degrees, schedule, ZeRO, shard group, rank order, offload
  std::int64_t fitting = 0;    ///< fit, with or without recomputation
  std::int64_t too_large = 0;  ///< do not fit even with every layer recomputed
  std::int64_t bounded = 0;    ///< not priced: no plan of theirs can be listed or on the front
  std::int64_t priced = 0;     ///< complete predictions (several recompute counts per tuple)
  std::int64_t splits = 0;     ///< tuples whose layers were split by the dynamic programme
};

/// Combinations whose layers were split evenly over the stages and not searched for a better split.
struct OpenSplits {
  enum class Kind {
    interleaved_two_kinds,  ///< chunks of layers of two kinds (dense, with experts)
    zero_bubble_h1,
    gpipe,
    pinned_recompute  ///< the request says how many layers each stage recomputes
  };
  Kind kind{};
  std::int64_t tuples = 0;  ///< whose bound lies below the winner's step
  double gap = 0;           ///< how much faster one of them could be at most, in [0, 1)
};
[[nodiscard]] std::string_view name_of(OpenSplits::Kind kind);  ///< "interleaved-two-kinds"

struct SearchOutcome {
  std::vector<Candidate> candidates;  ///< best first, at most request.top; the winner is [0]
  std::vector<Candidate> pareto;      ///< no other plan is both faster and smaller; fastest first;
                                      ///< empty with request.without_front
  std::vector<RejectionCount> rejected;
  std::vector<NearestInfeasible> nearest_infeasible;  ///< filled when nothing fits, closest first
  SearchCounts counts;
  bool exhaustive = true;               ///< every tuple was priced or bounded
  std::vector<OpenSplits> open_splits;  ///< … but of these their other splits were not
  double gap = 0;                       ///< how much faster what is open could still be, in [0, 1)

  [[nodiscard]] bool proved() const { return exhaustive && open_splits.empty(); }
  [[nodiscard]] const Candidate* winner() const {
    return candidates.empty() ? nullptr : &candidates.front();
  }
};

/// Called now and then, between finalists too, with the share done in [0, 1]; false: stop early.
using Progress = std::function<bool(double)>;

/// Searches all tuples the constraints leave open (docs/search.md). Deterministic; ties broken by
/// memory, then by the tuple itself. Best bound first; `request.exhaustive` prices every tuple,
/// with the same result. Error when the constraints contradict each other or leave no legal tuple
/// (each reason named).
[[nodiscard]] Result<SearchOutcome> search(const PlanRequest& request,
                                           const Progress& progress = {});

/// The plan the request's constraints describe, priced.
[[nodiscard]] Result<Candidate> predict(const PlanRequest& request);

}  // namespace echelon
