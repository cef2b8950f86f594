#include "planner/search/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace echelon {

namespace {

/// The degrees of a point and what else of it its memory depends on.
std::string words_of(const SearchPoint& p) {
  std::string out = fmt::format("tp {} cp {}", p.sharding.tp, p.sharding.cp);
  if (p.sharding.ep > 1) out += fmt::format(" ep {}", p.sharding.ep);
  if (p.sharding.etp > 1) out += fmt::format(" etp {}", p.sharding.etp);
  out += fmt::format(" pp {}", p.pp);
  if (p.vpp > 1) out += fmt::format(" vpp {}", p.vpp);
  out += fmt::format(" dp {} microbatch {} zero {}", p.dp, p.sharding.microbatch, p.zero);
  if (p.zero > 0 && p.shard_group != p.dp * p.sharding.cp) {
    out += fmt::format(" over {} ranks", p.shard_group);
  }
  if (p.offload_optimizer > 0) {
    out += fmt::format(", {:.0f} % of the optimizer offloaded", 100 * p.offload_optimizer);
  }
  if (p.sharding.overlap_ep) out += ", overlap of ep";
  switch (p.recompute.kind) {
    case Recompute::none: return out + ", nothing recomputed";
    case Recompute::full: return out + ", all layers recomputed";
    default: break;
  }
  const std::string modules = text_of(p.recompute.modules);
  return out + ", recompute " + std::string(name_of(p.recompute.kind)) +
         (modules.empty() ? "" : ":" + modules);
}

}  // namespace

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
    out.push_back({RejectionReason::memory, counts_.too_large,
                   fmt::format("{}: short by {:.2f} GiB", words_of(misses.front().point),
                               misses.front().missing.in(1_GiB))});
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
