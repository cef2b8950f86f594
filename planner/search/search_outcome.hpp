// The outcome of a search: ranked plans, the Pareto front, rejections with reasons, the
// certificate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/plan/plan_fields.hpp"
#include "core/plan/process_grid.hpp"
#include "planner/search/predict.hpp"
#include "planner/space/legality.hpp"

namespace echelon {

/// Points of one rejection reason.
struct RejectionCount {
  RejectionReason reason{};
  std::int64_t count = 0;
  /// Detail of the point that was met first; for memory, of the one counted that came closest.
  std::string nearest;
};

/// The single change that makes a plan fit: a pinned choice lifted, more GPUs of the same kind, or
/// GPUs with more memory.
struct RecomputeEveryLayer {};
struct HigherZero {
  int zero = 0;
};
struct SmallestMicrobatch {};
struct SequenceParallelOn {};
struct MoreGpus {
  int gpus = 0, now = 0;
  Axis axis{};     ///< that takes them: dp or pp
  int degree = 1;  ///< … and its degree then
};
struct LargerGpus {
  Bytes memory, now;
};
using Fix = std::variant<RecomputeEveryLayer, HigherZero, SmallestMicrobatch, SequenceParallelOn,
                         MoreGpus, LargerGpus>;

/// A plan that would have been right but for one thing.
struct NearestInfeasible {
  Candidate candidate;
  int stage = 0;
  Bytes missing;  ///< reserved peak minus usable memory on that stage
  Fix fix;
  /// The first recipe of the framework of the same format with which the plan fits as it is:
  /// "bf16:precision-aware". It changes how the optimizer computes.
  std::optional<std::string> narrower_states;
  /// Adapters of the usual rank with which, trained alone, the plan fits as it is, unless the next
  /// member says more. Nothing where the job trains adapters already, or the framework or the model
  /// takes none.
  std::optional<Adapters> adapters;
  /// Weights in 4 bits under adapters, the job's or those above, where it takes both and ZeRO-3 for
  /// a plan to fit.
  std::optional<QuantizedWeights> quantized_weights;
};

/// Every point ends in one place: points = fitting + too_large + bounded + rejected. One that is
/// out by a bound is not asked whether it fits, so a better bound moves points to `bounded`.
struct SearchCounts {
  std::int64_t points = 0;     ///< degrees, schedule, ZeRO, ZeRO group, rank order, offload
  std::int64_t fitting = 0;    ///< fit, with or without recomputation
  std::int64_t too_large = 0;  ///< do not fit even with every layer recomputed
  std::int64_t bounded = 0;    ///< not priced: no plan of theirs can be listed or on the front
  std::int64_t priced = 0;     ///< complete predictions (several recompute counts per point)
  std::int64_t simulated = 0;  ///< pipelines that were simulated
  std::int64_t splits = 0;     ///< points whose layers were partitioned by dynamic programming

  SearchCounts& operator+=(const SearchCounts& more) {
    points += more.points;
    fitting += more.fitting;
    too_large += more.too_large;
    bounded += more.bounded;
    priced += more.priced;
    simulated += more.simulated;
    splits += more.splits;
    return *this;
  }
};

/// Combinations whose layers were split evenly over the stages and not searched for a better split.
struct OpenSplits {
  enum class Kind {
    pinned_recompute  ///< the request says how many layers each stage recomputes
  };
  Kind kind{};
  std::int64_t points = 0;  ///< whose bound lies below the winner's step
  double gap = 0;           ///< how much faster one of them could be at most, in [0, 1)
};
[[nodiscard]] std::string_view name_of(OpenSplits::Kind kind);  ///< "pinned-recompute"

/// The plans of one family that are nearly as good as its best: a list folds them into a line. Only
/// those that were priced: a bound that leaves out more of the others leaves fewer.
struct Siblings {
  int plans = 0;            ///< without the best
  Seconds least, most;      ///< their steps by the closed form
  Bytes smallest, largest;  ///< their reserved peaks
  /// Values of the fields in which they differ from the best, that one's included: first and last.
  struct Range {
    const PlanField* field = nullptr;
    std::int64_t first = 0, last = 0;
  };
  std::vector<Range> ranges{};
};

struct SearchOutcome {
  /// The winner, then the best plans of other families (planner/search/plan_pool.hpp), least
  /// expected step first; at most request.top.
  std::vector<Candidate> candidates;
  std::vector<Siblings> siblings;  ///< of each candidate's family; empty for memory-headroom
  /// The plan with the shortest step, where that is not the winner: it fits with a smaller
  /// probability, or has unusual features that its gain does not outweigh.
  std::optional<Candidate> fastest;
  /// The fastest that is likely to fit (kSafeProbability) with its optimizer on the GPU, where it
  /// is faster than the winner and is not `fastest`.
  std::optional<Candidate> fastest_likely;
  std::vector<Candidate> pareto;  ///< no other plan is both faster and smaller; fastest first
  bool whole_front = false;       ///< `pareto` is that of all plans, else of those simulated
  std::vector<RejectionCount> rejected;
  /// Filled when nothing is likely to fit, closest first.
  std::vector<NearestInfeasible> nearest_infeasible;
  SearchCounts counts;
  bool exhaustive = true;               ///< every point was priced or bounded
  std::vector<OpenSplits> open_splits;  ///< … but of these their other splits were not
  /// How much faster an open plan could still be, in [0, 1), if no simulated step is shorter than
  /// its closed form by more than kClosedFormExcess and if, of a point's splits of the layers, the
  /// best in closed form is the best.
  double gap = 0;
  double proved_gap = 0;  ///< the same without these two assumptions; at least `gap`

  [[nodiscard]] bool best_as_assumed() const { return exhaustive && open_splits.empty(); }
  [[nodiscard]] bool proved() const { return best_as_assumed() && proved_gap == 0; }
  [[nodiscard]] const Candidate* winner() const {
    return candidates.empty() ? nullptr : &candidates.front();
  }
  /// Nothing also where no plan is likely to fit, and the winner is the best that may.
  [[nodiscard]] const Candidate* fitting_winner() const {
    return winner() != nullptr && winner()->fits ? winner() : nullptr;
  }
};

}  // namespace echelon
