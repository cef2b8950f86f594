#include "planner/search/proved_bound.hpp"

#include <algorithm>

namespace echelon {

void ProvedBound::join(const ProvedBound& fork, std::size_t plans) {
  if (fork.least_) lower_to(*fork.least_);
  for (const Sole& each : fork.sole_) {
    sole_.push_back({plans + each.first, plans + each.end, each.expected});
  }
}

void ProvedBound::lower_to(Seconds expected) {
  if (may_lower(expected)) least_ = expected;
}

void ProvedBound::lower_unless_simulated(std::size_t first, std::size_t end, Seconds expected) {
  sole_.push_back({first, end, expected});
}

std::optional<Seconds> ProvedBound::least(const PlanPool& pool) const {
  std::optional<Seconds> out = least_;
  for (const Sole& each : sole_) {
    if (out && each.expected >= *out) continue;
    const auto at = [&](std::size_t i) {
      return pool.plans().begin() + static_cast<std::ptrdiff_t>(i);
    };
    const bool all = std::all_of(at(each.first), at(each.end), [](const PricedPoint& plan) {
      return plan.simulated.has_value();
    });
    if (!all) out = each.expected;
  }
  return out;
}

}  // namespace echelon
