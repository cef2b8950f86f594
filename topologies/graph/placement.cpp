#include "topologies/graph/placement.hpp"

#include <algorithm>
#include <numeric>

namespace echelon {

namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A pattern of groups with `ranks` members at distance `stride` < D = `domain`; block =
/// ranks·stride.
struct Pattern {
  std::int64_t ranks;
  std::int64_t stride;
  std::int64_t domain;
  std::int64_t block;
  std::int64_t common;  ///< gcd(block, D): blocks start at multiples of it inside a domain
};

/// The worst of the groups that start at local positions `low` … `high` of a domain, where every
/// position p with p mod common < reach occurs. A group at p ends (r − 1)·s later. Its first domain
/// holds ⌈(D − p)/s⌉ members, the minimum at the highest p; its last one holds ⌊q/s⌋ + 1, where q
/// is the group's local end, the minimum at the lowest p that still touches as many domains. A
/// domain in between holds at least ⌊D/s⌋, which is never less than the first one's number at the
/// highest p.
Placement worst_between(const Pattern& pattern, std::int64_t low, std::int64_t high,
                        std::int64_t reach) {
  const std::int64_t length = (pattern.ranks - 1) * pattern.stride;
  const std::int64_t domains = (high + length) / pattern.domain + 1;
  if (domains == 1) {
    const auto all = static_cast<int>(pattern.ranks);
    return {all, all, 1, 1, false};
  }
  const std::int64_t ends = (domains - 1) * pattern.domain;
  std::int64_t first = std::max(low, ends - length);
  if (first % pattern.common >= reach) first = ceil_div(first, pattern.common) * pattern.common;
  const std::int64_t head = ceil_div(pattern.domain - high, pattern.stride);
  const std::int64_t tail = (first + length - ends) / pattern.stride + 1;
  const std::int64_t max_members = domains > 2
                                       ? ceil_div(pattern.domain, pattern.stride)
                                       : std::max(ceil_div(pattern.domain - first, pattern.stride),
                                                  (high + length - ends) / pattern.stride + 1);
  return {static_cast<int>(max_members), static_cast<int>(std::min(head, tail)),
          static_cast<int>(domains), 1, false};
}

/// Blocks start at multiples of r·s, groups at the first s positions of a block.
Placement worst_group(const Pattern& pattern, std::int64_t blocks) {
  const std::int64_t domain = pattern.domain;
  if (blocks >= domain / pattern.common) {  // blocks start at every multiple of `common`
    const std::int64_t reach = std::min(pattern.stride, pattern.common);
    return worst_between(pattern, 0, domain - pattern.common + reach - 1, reach);
  }
  Placement worst;
  for (std::int64_t k = 0; k < blocks; ++k) {
    const std::int64_t low = k * pattern.block % domain;
    const std::int64_t high = std::min(low + pattern.stride, domain) - 1;
    const Placement one = worst_between(pattern, low, high, pattern.common);
    if (k == 0 || one.domains > worst.domains) {
      worst = one;
    } else if (one.domains == worst.domains) {
      worst.min_members = std::min(worst.min_members, one.min_members);
      worst.per_domain = std::max(worst.per_domain, one.per_domain);
    }
  }
  return worst;
}

/// Number of groups with a member in a domain whose first `head` positions end a block: L
/// consecutive positions inside one block hold min(L, s) groups.
std::int64_t groups_touching(const Pattern& pattern, std::int64_t head) {
  const std::int64_t whole = (pattern.domain - head) / pattern.block;
  const std::int64_t tail = (pattern.domain - head) % pattern.block;
  return std::min(head, pattern.stride) + whole * pattern.stride + std::min(tail, pattern.stride);
}

/// The larger value of groups_touching() at the two multiples of `common` around the middle of
/// `length`.
std::int64_t groups_touching_near(const Pattern& pattern, std::int64_t length, std::int64_t limit) {
  const std::int64_t head = length / 2 / pattern.common * pattern.common;
  const std::int64_t next = std::min(head + pattern.common, limit);
  return std::max(groups_touching(pattern, head), groups_touching(pattern, next));
}

/// The maximum number of groups that have a member in one domain. If d·D mod block takes every
/// multiple of `common`, the count is concave in the head on either side of D mod block, so the
/// middles decide.
std::int64_t max_groups_touching(const Pattern& pattern, std::int64_t gpus) {
  const std::int64_t domains = std::max<std::int64_t>(1, gpus / pattern.domain);
  const std::int64_t rest = pattern.domain % pattern.block;
  if (domains >= pattern.block / pattern.common) {
    const std::int64_t limit = std::min(pattern.block - pattern.common, pattern.domain);
    const std::int64_t upper = pattern.block <= pattern.domain ? pattern.block + rest : rest;
    return std::max(groups_touching_near(pattern, rest, limit),
                    groups_touching_near(pattern, upper, limit));
  }
  if (pattern.block > pattern.domain) {  // at most one boundary between blocks lies inside a domain
    std::int64_t max_groups = std::min(pattern.domain, pattern.stride);
    const std::int64_t blocks = std::min(gpus / pattern.block, pattern.domain / pattern.common);
    for (std::int64_t k = 1; k < blocks; ++k) {
      max_groups =
          std::max(max_groups, groups_touching(pattern, k * pattern.block % pattern.domain));
    }
    return max_groups;
  }
  std::int64_t max_groups = 0;
  for (std::int64_t d = 0; d < domains; ++d) {
    max_groups = std::max(
        max_groups, groups_touching(pattern, (pattern.block - d * pattern.domain % pattern.block) %
                                                 pattern.block));
  }
  return max_groups;
}

}  // namespace

Placement place(std::int64_t ranks, std::int64_t stride, std::int64_t domain, std::int64_t gpus) {
  const std::int64_t block = ranks * stride;
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  if (ranks == 1) return {1, 1, 1, small(std::min(domain, gpus)), true};
  if (domain % block == 0) return {small(ranks), small(ranks), 1, small(domain / ranks), true};
  if (stride >= domain) return {1, 1, small(ranks), small(domain), true};
  if (domain % stride == 0 && block % domain == 0) {
    const std::int64_t each = domain / stride;
    return {small(each), small(each), small(block / domain), small(stride), true};
  }
  const Pattern pattern{ranks, stride, domain, block, std::gcd(block, domain)};
  Placement worst = worst_group(pattern, std::max<std::int64_t>(1, gpus / block));
  worst.sharing = small(max_groups_touching(pattern, gpus));
  return worst;
}

std::int64_t nodes_of_each_domain(std::int64_t nodes, std::int64_t whole) {
  if (nodes <= whole) return nodes;
  for (std::int64_t each = whole; 2 * each >= whole; --each) {
    if (nodes % each == 0) return each;
  }
  return whole;
}

}  // namespace echelon
