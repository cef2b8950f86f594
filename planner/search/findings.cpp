#include "planner/search/findings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/expects.hpp"

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

void Findings::accept(const SearchPoint& point, const Priced& priced) {
  front_.add(priced.time.step, priced.memory.peak_reserved);
  add({priced.time.step, priced.memory.peak_reserved, point});
}

void Findings::accept(const SearchPoint& point, const Priced& priced, LayerPartition partition) {
  partitions_.push_back(std::move(partition));
  add({priced.time.step, priced.memory.peak_reserved, point,
       static_cast<int>(partitions_.size()) - 1});
}

void Findings::add(PricedPoint found) {
  EXPECTS(found.step.is_finite(), "a step that takes a finite time");
  ++counts_.priced;
  best_.insert(std::upper_bound(best_.begin(), best_.end(), found.step), found.step);
  if (best_.size() > static_cast<std::size_t>(context_.request.top)) best_.pop_back();
  fitting_.push_back(std::move(found));
}

void Findings::reject(const Rejection& rejection, std::int64_t points) {
  RejectionCount& entry = rejected_[rejection.reason];
  entry.reason = rejection.reason;
  if (entry.count == 0) entry.nearest = rejection.detail;
  count(entry.count, points);
}

void Findings::too_large(const TooLargePoint& found) {
  count_too_large();
  const SearchPoint& point = found.point;
  const auto [at, inserted] =
      closest_.try_emplace({point.sharding.tp, point.sharding.cp, point.pp}, found);
  if (!inserted) at->second = std::min(at->second, found);
}

std::optional<Seconds> Findings::incumbent() const {
  const std::optional<Seconds> limit = context_.request.no_slower_than;
  if (best_.size() < static_cast<std::size_t>(context_.request.top)) return limit;
  return limit ? std::min(*limit, best_.back()) : best_.back();
}

bool Findings::can_be_listed(Seconds least) const {
  if (context_.request.exhaustive) return true;
  const std::optional<Seconds> limit = incumbent();
  return !limit || least <= *limit;
}

std::optional<Seconds> Findings::fastest() const {
  return best_.empty() ? std::nullopt : std::optional(best_.front());
}

std::vector<PricedPoint> Findings::take_ranked() {
  std::sort(fitting_.begin(), fitting_.end());
  return std::move(fitting_);
}

std::vector<TooLargePoint> Findings::closest() const {
  std::vector<TooLargePoint> out;
  for (const auto& [degrees, entry] : closest_) out.push_back(entry);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<RejectionCount> Findings::rejections() const {
  std::vector<RejectionCount> out;
  for (const auto& [reason, entry] : rejected_) out.push_back(entry);
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
  for (const UnsearchedPartition& open : unsearched_) {
    if (best_.empty() || open.least >= best_.front()) continue;
    OpenSplits& entry = found[open.kind];
    entry.kind = open.kind;
    ++entry.points;
    entry.gap = std::max(entry.gap, 1 - open.least / best_.front());
  }
  std::vector<OpenSplits> out;
  for (const auto& [kind, entry] : found) out.push_back(entry);
  return out;
}

}  // namespace echelon
