#include "topologies/graph/group_table.hpp"

#include <algorithm>
#include <utility>

namespace echelon {

std::vector<Group> groups_in_domain(int domain, int members, int stride) {
  std::vector<Group> groups;
  for (int block = 0; block < domain; block += members * stride) {
    for (int j = 0; j < stride; ++j) {
      Group group;
      for (int i = 0; i < members && block + j + i * stride < domain; ++i) {
        group.push_back(block + j + i * stride);
      }
      if (!group.empty()) groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::vector<Group> groups_through_domain(int domain, int stride) {
  return groups_in_domain(domain, (domain + stride - 1) / stride, stride);
}

GroupTable::GroupTable(const TopologyGraph& graph)
    : size_(static_cast<std::size_t>(graph.gpus())), uniform_(graph.has_nvswitch()) {
  const int domain = graph.gpus();
  if (uniform_) {
    intra_.push_back(graph.group_bandwidth({}));
  } else {
    intra_.resize(size_ * size_);
    exchange_.resize(size_ * size_);
    for (int stride = 1; stride <= domain; ++stride) {
      for (int members = 1; (members - 1) * stride < domain; ++members) {
        const std::size_t at =
            static_cast<std::size_t>(stride - 1) * size_ + static_cast<std::size_t>(members - 1);
        const std::vector<Group> groups = groups_in_domain(domain, members, stride);
        intra_[at] = graph.group_bandwidth(groups);
        exchange_[at] = graph.exchange_bandwidth(groups);
      }
    }
  }
  inter_.resize(size_);
  per_gpu_.resize(size_);
  // NICs serve only their own node, so the slowest of several nodes decides: a full node, or the
  // one in which only the GPUs at the edge send. Both edges count, since one sends and its peer
  // receives.
  const int node = std::min(graph.gpus_per_node(), domain);
  std::vector<Group> last;
  std::vector<Group> first;
  for (int count = 1; count <= domain; ++count) {
    BytesPerSecond& share = per_gpu_[static_cast<std::size_t>(count - 1)];
    if (count <= node) {
      last.push_back({domain - count});
      first.push_back({count - 1});
      share = std::min(graph.fair_egress(last), graph.fair_egress(first));
    } else {
      share = std::min(per_gpu(node), per_gpu(count % node == 0 ? node : count % node));
    }
    if (domain % count == 0) {
      inter_[static_cast<std::size_t>(count - 1)] =
          graph.fair_egress(groups_through_domain(domain, count));
    }
  }
}

}  // namespace echelon
