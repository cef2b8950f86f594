// GroupTable: bandwidths of all patterns of groups in a domain, precomputed from the graph.
#pragma once

#include <cstddef>
#include <vector>

#include "core/base/units.hpp"
#include "topologies/graph/graph.hpp"

namespace echelon {

/// All groups of `members` GPUs at distance `stride` in a domain of `domain` GPUs, in consecutive
/// blocks of members·stride; the remaining GPUs at the end form smaller groups.
[[nodiscard]] std::vector<Group> groups_in_domain(int domain, int members, int stride);
/// The groups of stride `stride` that extend beyond the domain: one per residue.
[[nodiscard]] std::vector<Group> groups_through_domain(int domain, int stride);

class GroupTable {
 public:
  explicit GroupTable(const TopologyGraph& graph);

  /// Bandwidth per rank inside the domain; (members − 1)·stride < domain.
  [[nodiscard]] BytesPerSecond intra(int members, int stride) const {
    return uniform_ ? intra_.front()
                    : intra_[static_cast<std::size_t>(stride - 1) * size_ +
                             static_cast<std::size_t>(members - 1)];
  }
  /// The same of ranks that exchange with all others of their group.
  [[nodiscard]] BytesPerSecond intra_exchange(int members, int stride) const {
    return uniform_ ? intra_.front()
                    : exchange_[static_cast<std::size_t>(stride - 1) * size_ +
                                static_cast<std::size_t>(members - 1)];
  }
  /// Egress of one group that extends beyond the domain; `stride` divides the domain.
  [[nodiscard]] BytesPerSecond inter(int stride) const {
    return inter_[static_cast<std::size_t>(stride - 1)];
  }
  /// Egress of one GPU while the last `senders` GPUs of a domain send to the first ones of the
  /// next.
  [[nodiscard]] BytesPerSecond per_gpu(int senders) const {
    return per_gpu_[static_cast<std::size_t>(senders - 1)];
  }

 private:
  std::size_t size_;
  bool uniform_;  ///< NVSwitch: every pattern has the same intra bandwidth
  std::vector<BytesPerSecond> intra_;
  std::vector<BytesPerSecond> exchange_;
  std::vector<BytesPerSecond> inter_;
  std::vector<BytesPerSecond> per_gpu_;
};

}  // namespace echelon
