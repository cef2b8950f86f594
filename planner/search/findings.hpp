// The findings of a search so far: plans that fit, the fate of all other points, open partitions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "planner/search/plan_pool.hpp"
#include "planner/search/proved_bound.hpp"
#include "planner/search/search_outcome.hpp"

namespace echelon {

/// A point that does not fit, and by how much.
struct TooLargePoint {
  Bytes missing;
  SearchPoint point;
  auto operator<=>(const TooLargePoint&) const = default;
};

/// A point whose layers may be partitioned unevenly.
struct PendingPartition {
  Seconds least;  ///< no plan of the point takes less
  SearchPoint point;
  const ShardingCosts* costs = nullptr;
  double weight = 1;  ///< … or is weighed by less
};

/// A point that can win and of whose partitions of the layers not all were looked at.
struct UnsearchedPartition {
  OpenSplits::Kind kind{};
  Seconds least;  ///< expected step of any of them
};

/// The Pareto front of (simulated step, memory) found so far: time ascending, memory descending.
class StepMemoryFront {
 public:
  void add(Seconds step, Bytes memory);
  void add(const StepMemoryFront& other) {
    for (const auto& [step, memory] : other.points_) add(step, memory);
  }
  /// Whether some plan found is at least as fast and at least as small.
  [[nodiscard]] bool dominates(Seconds step, Bytes memory) const;

 private:
  std::map<Seconds, Bytes> points_;
};

/// Points that break a rule, by the rule.
class RejectionTally {
 public:
  void add(const Rejection& rejection, std::int64_t points = 1);
  /// Those of a later part of the space.
  void add(const RejectionTally& later);
  [[nodiscard]] std::int64_t points() const { return points_; }
  [[nodiscard]] std::vector<RejectionCount> all() const;

 private:
  void add(const RejectionCount& counted);

  std::map<RejectionReason, RejectionCount> of_reason_;
  std::int64_t points_ = 0;
};

class Findings {
 public:
  explicit Findings(const SearchContext& context) : pool(context), context_(context) {}
  /// Findings of their own, of a part of the space, that are judged by these as well: for work on
  /// several parts at once. These stay as they are until all forks are joined.
  [[nodiscard]] Findings fork() const;
  /// Takes what a fork found, as if it had been found here.
  void join(Findings&& fork);

  PlanPool pool;       ///< the plans that fit
  ProvedBound proved;  ///< … and what the others take at least

  /// A plan that fits, priced in full; with balanced stages unless a partition is given.
  void accept(const SearchPoint& point, const ShardingCosts& costs, Priced& priced,
              std::optional<LayerPartition> partition = std::nullopt);
  void reject(const Rejection& rejection, std::int64_t points = 1) {
    rejected_.add(rejection, points);
    counts_.points += points;
  }
  void reject(const RejectionTally& rejections) {
    rejected_.add(rejections);
    counts_.points += rejections.points();
  }
  void count_fitting() { count(counts_.fitting, 1); }
  void count_bounded(std::int64_t points = 1) { count(counts_.bounded, points); }
  void count_too_large(std::int64_t points = 1) { count(counts_.too_large, points); }
  void count_partitioned() { ++counts_.splits; }
  void too_large(const TooLargePoint& point);
  void pending(const PendingPartition& open) { pending_.push_back(open); }
  void unsearched(const UnsearchedPartition& open) { unsearched_.push_back(open); }

  [[nodiscard]] bool front_dominates(Seconds step, Bytes memory) const {
    return front_.dominates(step, memory) || (known_ && known_->front_dominates(step, memory));
  }
  [[nodiscard]] bool found_legal() const {
    return counts_.fitting + counts_.too_large + counts_.bounded > 0;
  }

  [[nodiscard]] const SearchCounts& counts() const { return counts_; }
  [[nodiscard]] std::vector<PendingPartition> take_pending() { return std::move(pending_); }
  [[nodiscard]] const std::vector<PendingPartition>& pending() const { return pending_; }
  /// The closest of each (tp, cp, pp), closest first.
  [[nodiscard]] std::vector<TooLargePoint> closest() const;
  [[nodiscard]] std::vector<RejectionCount> rejections() const;
  [[nodiscard]] std::vector<OpenSplits> open_splits() const;

 private:
  void count(std::int64_t& where, std::int64_t points) {
    where += points;
    counts_.points += points;
  }

  explicit Findings(const Findings* known)
      : pool(known->pool.fork()),
        proved(known->proved.fork()),
        context_(known->context_),
        known_(known) {}
  void note_closest(const TooLargePoint& found);

  const SearchContext& context_;
  const Findings* known_ = nullptr;  ///< of a fork: what it was forked from
  SearchCounts counts_;
  std::vector<PendingPartition> pending_;
  std::vector<UnsearchedPartition> unsearched_;
  StepMemoryFront front_;
  std::map<std::tuple<int, int, int>, TooLargePoint> closest_;  ///< per (tp, cp, pp)
  RejectionTally rejected_;
};

}  // namespace echelon
