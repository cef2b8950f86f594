#include "topologies/graph/placement.hpp"

#include <algorithm>
#include <numeric>

namespace echelon {

namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Groups of `ranks` members at distance `stride` < D = `domain`, block = ranks·stride.
struct Kind {
  std::int64_t ranks;
  std::int64_t stride;
  std::int64_t domain;
  std::int64_t block;
  std::int64_t common;  ///< gcd(block, D): blocks start at multiples of it inside a domain
};

/// The worst of the groups that start at local positions `low` … `high` of a domain, of which every
/// position p with p mod common < reach occurs. A group at p ends (r − 1)·s later; its first domain
/// holds ⌈(D − p)/s⌉ members, fewest at the highest p; its last one ⌊q/s⌋ + 1 where q is its local
/// end, fewest at the lowest p that still touches as many domains. A domain in between holds at
/// least ⌊D/s⌋, which is never fewer than the first one's at the highest p.
Placement worst_between(const Kind& kind, std::int64_t low, std::int64_t high, std::int64_t reach) {
  const std::int64_t length = (kind.ranks - 1) * kind.stride;
  const std::int64_t domains = (high + length) / kind.domain + 1;
  if (domains == 1) {
    const auto all = static_cast<int>(kind.ranks);
    return {all, all, 1, 1, false};
  }
  const std::int64_t ends = (domains - 1) * kind.domain;
  std::int64_t first = std::max(low, ends - length);
  if (first % kind.common >= reach) first = ceil_div(first, kind.common) * kind.common;
  const std::int64_t head = ceil_div(kind.domain - high, kind.stride);
  const std::int64_t tail = (first + length - ends) / kind.stride + 1;
  const std::int64_t fullest = domains > 2 ? ceil_div(kind.domain, kind.stride)
                                           : std::max(ceil_div(kind.domain - first, kind.stride),
                                                      (high + length - ends) / kind.stride + 1);
  return {static_cast<int>(fullest), static_cast<int>(std::min(head, tail)),
          static_cast<int>(domains), 1, false};
}

/// Blocks start at multiples of r·s, groups within the first s places of a block.
Placement worst_group(const Kind& kind, std::int64_t blocks) {
  const std::int64_t domain = kind.domain;
  if (blocks >= domain / kind.common) {  // blocks start at every multiple of `common`
    const std::int64_t reach = std::min(kind.stride, kind.common);
    return worst_between(kind, 0, domain - kind.common + reach - 1, reach);
  }
  Placement worst;
  for (std::int64_t k = 0; k < blocks; ++k) {
    const std::int64_t low = k * kind.block % domain;
    const std::int64_t high = std::min(low + kind.stride, domain) - 1;
    const Placement one = worst_between(kind, low, high, kind.common);
    if (k == 0 || one.domains > worst.domains) {
      worst = one;
    } else if (one.domains == worst.domains) {
      worst.fewest = std::min(worst.fewest, one.fewest);
      worst.per_domain = std::max(worst.per_domain, one.per_domain);
    }
  }
  return worst;
}

/// Groups with a member in a domain whose first `head` places end a block: a run of L places inside
/// one block holds min(L, s) groups.
std::int64_t meeting(const Kind& kind, std::int64_t head) {
  const std::int64_t whole = (kind.domain - head) / kind.block;
  const std::int64_t tail = (kind.domain - head) % kind.block;
  return std::min(head, kind.stride) + whole * kind.stride + std::min(tail, kind.stride);
}

/// The larger of `meeting` at the two multiples of `common` around the middle of `length`.
std::int64_t meeting_near(const Kind& kind, std::int64_t length, std::int64_t limit) {
  const std::int64_t head = length / 2 / kind.common * kind.common;
  const std::int64_t next = std::min(head + kind.common, limit);
  return std::max(meeting(kind, head), meeting(kind, next));
}

/// Most groups that have a member in one domain. With d·D mod block reaching every multiple of
/// `common`, the count is concave in the head on either side of D mod block, so the middles decide.
std::int64_t most_meeting(const Kind& kind, std::int64_t gpus) {
  const std::int64_t domains = std::max<std::int64_t>(1, gpus / kind.domain);
  const std::int64_t rest = kind.domain % kind.block;
  if (domains >= kind.block / kind.common) {
    const std::int64_t limit = std::min(kind.block - kind.common, kind.domain);
    const std::int64_t upper = kind.block <= kind.domain ? kind.block + rest : rest;
    return std::max(meeting_near(kind, rest, limit), meeting_near(kind, upper, limit));
  }
  if (kind.block > kind.domain) {  // at most one boundary between blocks lies inside a domain
    std::int64_t most = std::min(kind.domain, kind.stride);
    const std::int64_t blocks = std::min(gpus / kind.block, kind.domain / kind.common);
    for (std::int64_t k = 1; k < blocks; ++k) {
      most = std::max(most, meeting(kind, k * kind.block % kind.domain));
    }
    return most;
  }
  std::int64_t most = 0;
  for (std::int64_t d = 0; d < domains; ++d) {
    most = std::max(most, meeting(kind, (kind.block - d * kind.domain % kind.block) % kind.block));
  }
  return most;
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
  const Kind kind{ranks, stride, domain, block, std::gcd(block, domain)};
  Placement worst = worst_group(kind, std::max<std::int64_t>(1, gpus / block));
  worst.sharing = small(most_meeting(kind, gpus));
  return worst;
}

}  // namespace echelon
