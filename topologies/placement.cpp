#include "topologies/placement.hpp"

#include <algorithm>
#include <numeric>

namespace echelon {

namespace {

/// Members of the group that starts at local position `p` of a domain, domain by domain.
Placement from_position(std::int64_t p, std::int64_t ranks, std::int64_t stride,
                        std::int64_t domain) {
  const std::int64_t last = p + (ranks - 1) * stride;
  const std::int64_t domains = last / domain + 1;
  if (domains == 1) {
    return {static_cast<int>(ranks), static_cast<int>(ranks), 1, 1, false};
  }
  const std::int64_t head = (domain - p + stride - 1) / stride;
  const std::int64_t tail = last % domain / stride + 1;
  std::int64_t fullest = std::max(head, tail);
  std::int64_t emptiest = std::min(head, tail);
  if (domains > 2) {  // domains between hold ⌊D/s⌋ or ⌈D/s⌉, whichever; with D % s ≠ 0 both occur
    const std::int64_t between = ranks - head - tail;
    const std::int64_t low = domain / stride;
    const std::int64_t high = (domain + stride - 1) / stride;
    emptiest = std::min(emptiest, between == high * (domains - 2) ? high : low);
    fullest = std::max(fullest, between == low * (domains - 2) ? low : high);
  }
  return {static_cast<int>(fullest), static_cast<int>(emptiest), static_cast<int>(domains), 1,
          false};
}

bool worse(const Placement& a, const Placement& b) {
  if (a.domains != b.domains) return a.domains > b.domains;
  if (a.fewest != b.fewest) return a.fewest < b.fewest;
  return a.per_domain > b.per_domain;
}

/// Most groups that have a member in one domain. A run of L places inside one block holds min(L, s)
/// groups; a domain is a run, whole blocks, and a run.
std::int64_t most_meeting(std::int64_t block, std::int64_t stride, std::int64_t domain,
                          std::int64_t gpus) {
  const std::int64_t domains = std::max<std::int64_t>(1, gpus / domain);
  const std::int64_t distinct = std::min(domains, block / std::gcd(block, domain));
  const std::int64_t steps = std::min(distinct, domain + 1);
  std::int64_t most = std::min(domain, stride);
  if (block >= domain) {  // at most one boundary between blocks lies inside a domain
    const std::int64_t boundaries = std::max<std::int64_t>(1, gpus / block);
    const std::int64_t positions = std::min(boundaries, domain / std::gcd(block, domain));
    for (std::int64_t k = 1; k < positions; ++k) {
      const std::int64_t head = k * block % domain;
      most = std::max(most, std::min(head, stride) + std::min(domain - head, stride));
    }
    return most;
  }
  for (std::int64_t d = 0; d < steps; ++d) {
    const std::int64_t head = (block - d * domain % block) % block;
    const std::int64_t whole = (domain - head) / block;
    const std::int64_t tail = (domain - head) % block;
    most = std::max(most, std::min(head, stride) + whole * stride + std::min(tail, stride));
  }
  return most;
}

/// Every position at which a group can start: blocks start at multiples of r·s, groups within the
/// first s places of a block.
Placement search(std::int64_t ranks, std::int64_t stride, std::int64_t domain, std::int64_t gpus) {
  const std::int64_t block = ranks * stride;
  const std::int64_t blocks = std::max<std::int64_t>(1, gpus / block);
  const std::int64_t distinct = std::min(blocks, domain / std::gcd(block, domain));
  Placement worst;
  for (std::int64_t k = 0; k < distinct; ++k) {
    for (std::int64_t j = 0; j < stride; ++j) {
      const Placement one = from_position((k * block + j) % domain, ranks, stride, domain);
      if ((k == 0 && j == 0) || worse(one, worst)) worst = one;
    }
  }
  worst.sharing = static_cast<int>(most_meeting(block, stride, domain, gpus));
  return worst;
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
  return search(ranks, stride, domain, gpus);
}

}  // namespace echelon
