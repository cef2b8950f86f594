// GroupTable: what the graph says about every pattern of groups in a domain, computed at load.
#pragma once

#include <cstddef>
#include <vector>

#include "core/base/units.hpp"
#include "topologies/graph/graph.hpp"

namespace echelon {

/// All groups of `members` GPUs at distance `stride` in a domain of `domain` GPUs, blocks of
/// members·stride side by side; what does not fill a whole group at the end is a smaller group.
[[nodiscard]] std::vector<Group> groups_in_domain(int domain, int members, int stride);
/// The groups of stride `stride` when they go on beyond the domain: one per residue.
[[nodiscard]] std::vector<Group> groups_through_domain(int domain, int stride);

class GroupTable {
 public:
  explicit GroupTable(const TopologyGraph& graph);

  /// Per rank inside the domain; (members − 1)·stride < domain.
  [[nodiscard]] BytesPerSecond intra(int members, int stride) const {
    return uniform_ ? intra_.front()
                    : intra_[static_cast<std::size_t>(stride - 1) * size_ +
                             static_cast<std::size_t>(members - 1)];
  }
  /// Of one group that goes on beyond the domain; `stride` divides the domain.
  [[nodiscard]] BytesPerSecond inter(int stride) const {
    return inter_[static_cast<std::size_t>(stride - 1)];
  }
  /// Of one GPU when the last `senders` GPUs of a domain send to the first ones of the next.
  [[nodiscard]] BytesPerSecond per_gpu(int senders) const {
    return per_gpu_[static_cast<std::size_t>(senders - 1)];
  }

 private:
  std::size_t size_;
  bool uniform_;  ///< NVSwitch: every pattern has the same intra bandwidth
  std::vector<BytesPerSecond> intra_;
  std::vector<BytesPerSecond> inter_;
  std::vector<BytesPerSecond> per_gpu_;
};

}  // namespace echelon
