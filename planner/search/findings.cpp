#include "planner/search/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace echelon {

void StepMemoryFront::add(Seconds step, Bytes memory) {
  if (dominates(step, memory)) return;
  auto at = points_.lower_bound(step);
  while (at != points_.end() && at->second >= memory) at = points_.erase(at);
  points_[step] = memory;
}

bool StepMemoryFront::dominates(Seconds step, Bytes memory) const {
  auto after = points_.upper_bound(step);
  return after != points_.begin() && std::prev(after)->second <= memory;
}

void RejectionTally::add(const RejectionCount& counted) {
  RejectionCount& entry = of_reason_[counted.reason];
  entry.reason = counted.reason;
  if (entry.count == 0) entry.nearest = counted.nearest;
  entry.count += counted.count;
  points_ += counted.count;
}

void RejectionTally::add(const Rejection& rejection, std::int64_t points) {
  add(RejectionCount{rejection.reason, points, rejection.detail});
}

void RejectionTally::add(const RejectionTally& later) {
  for (const auto& [reason, counted] : later.of_reason_) add(counted);
}

std::vector<RejectionCount> RejectionTally::all() const {
  std::vector<RejectionCount> out;
  for (const auto& [reason, counted] : of_reason_) out.push_back(counted);
  return out;
}

void Findings::accept(const SearchPoint& point, const ShardingCosts& costs, Priced& priced,
                      std::optional<LayerPartition> partition) {
  ++counts_.priced;
  const auto wanted = [&](Seconds least, Bytes memory) {
    return context_.whole_front && !front_dominates(least, memory);
  };
  const PricedPoint& plan = pool.add(point, costs, priced, std::move(partition), wanted);
  if (plan.simulated) front_.add(*plan.simulated, plan.memory);
}

Findings Findings::fork() const { return Findings(this); }

void Findings::join(Findings&& fork) {
  proved.join(fork.proved, pool.plans().size());
  pool.join(std::move(fork.pool));
  counts_ += fork.counts_;
  std::ranges::move(fork.pending_, std::back_inserter(pending_));
  std::ranges::move(fork.unsearched_, std::back_inserter(unsearched_));
  front_.add(fork.front_);
  for (const auto& [degrees, entry] : fork.closest_) note_closest(entry);
  rejected_.add(fork.rejected_);
}

void Findings::too_large(const TooLargePoint& found) {
  count_too_large();
  note_closest(found);
}

void Findings::note_closest(const TooLargePoint& found) {
  const SearchPoint& point = found.point;
  const auto [at, inserted] =
      closest_.try_emplace({point.sharding.tp, point.sharding.cp, point.pp}, found);
  if (!inserted) at->second = std::min(at->second, found);
}

std::vector<TooLargePoint> Findings::closest() const {
  std::vector<TooLargePoint> out;
  for (const auto& [degrees, entry] : closest_) out.push_back(entry);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<RejectionCount> Findings::rejections() const {
  std::vector<RejectionCount> out = rejected_.all();
  const std::vector<TooLargePoint> misses = closest();
  if (!misses.empty()) {
    const SearchPoint& p = misses.front().point;
    out.push_back({RejectionReason::memory, counts_.too_large,
                   fmt::format("tp {} cp {} pp {} dp {} microbatch {} zero {}, all layers "
                               "recomputed: short by {:.2f} GiB",
                               p.sharding.tp, p.sharding.cp, p.pp, p.dp, p.sharding.microbatch,
                               p.zero, misses.front().missing.in(1_GiB))});
  }
  return out;
}

std::vector<OpenSplits> Findings::open_splits() const {
  std::map<OpenSplits::Kind, OpenSplits> found;
  const std::optional<Seconds> best = pool.best();
  for (const UnsearchedPartition& open : unsearched_) {
    if (!best || open.least >= *best) continue;
    OpenSplits& entry = found[open.kind];
    entry.kind = open.kind;
    ++entry.points;
    entry.gap = std::max(entry.gap, 1 - open.least / *best);
  }
  std::vector<OpenSplits> out;
  for (const auto& [kind, entry] : found) out.push_back(entry);
  return out;
}

}  // namespace echelon
