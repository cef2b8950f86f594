#include "costmodel/collectives/collective_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "topologies/description/description.hpp"

namespace echelon {
namespace {

constexpr double kWidestGap = 4;  ///< between two sizes that are interpolated

/// Mean of the logarithms of the times measured at one size.
struct SizeMean {
  Bytes bytes;
  double log_seconds = 0;
  int rows = 0;
};

std::vector<SizeMean> means_by_size(std::span<const MeasuredCollective> rows, CollectiveKind kind,
                                    int nodes, int ranks) {
  std::map<double, SizeMean> sizes;
  for (const MeasuredCollective& row : rows) {
    if (row.kind != kind || row.nodes != nodes || row.ranks != ranks) continue;
    SizeMean& mean = sizes[row.bytes.in(kByte)];
    mean.bytes = row.bytes;
    mean.log_seconds += std::log(row.time.in(kSecond));
    ++mean.rows;
  }
  std::vector<SizeMean> result;
  for (auto& [size, mean] : sizes) {
    mean.log_seconds /= mean.rows;
    result.push_back(mean);
  }
  return result;
}

Result<GroupNetwork> network_of(int nodes, int ranks, const ClusterTopology& cluster) {
  const int node = static_cast<int>(cluster.machine().node.gpus);
  const bool whole_nodes = ranks == nodes * node;
  const bool part_of_one = nodes == 1 && ranks <= node;
  if (!whole_nodes && !part_of_one && ranks != nodes) {
    return input_error("measured collectives", fmt::format("{} ranks on {} nodes", ranks, nodes),
                       fmt::format("1 or {} ranks per node, as '{}' has, or a part of one node",
                                   node, cluster.name()));
  }
  const int gpus = whole_nodes || part_of_one ? ranks : nodes * node;
  const Result<ClusterTopology> sized = cluster.resized(gpus);
  if (!sized) return sized.error();
  return sized->group({ranks, whole_nodes || part_of_one ? 1 : node});
}

}  // namespace

std::optional<Seconds> measured_time(std::span<const MeasuredCollective> rows, CollectiveKind kind,
                                     int nodes, int ranks, Bytes bytes) {
  const std::vector<SizeMean> sizes = means_by_size(rows, kind, nodes, ranks);
  const auto above = std::lower_bound(sizes.begin(), sizes.end(), bytes,
                                      [](const SizeMean& s, Bytes b) { return s.bytes < b; });
  if (above == sizes.end()) return std::nullopt;
  if (above->bytes == bytes) return Seconds{std::exp(above->log_seconds)};
  if (above == sizes.begin()) return std::nullopt;
  const SizeMean& below = *(above - 1);
  const double gap = above->bytes / below.bytes;
  if (gap > kWidestGap) return std::nullopt;
  const double share = std::log(bytes / below.bytes) / std::log(gap);
  return Seconds{std::exp(below.log_seconds + share * (above->log_seconds - below.log_seconds))};
}

Result<std::vector<PlacedCollective>> place_collectives(std::span<const MeasuredCollective> rows,
                                                        const ClusterTopology& cluster) {
  std::map<std::pair<int, int>, GroupNetwork> networks;
  std::vector<PlacedCollective> placed;
  for (const MeasuredCollective& row : rows) {
    const std::pair<int, int> shape{row.nodes, row.ranks};
    if (!networks.contains(shape)) {
      const Result<GroupNetwork> network = network_of(row.nodes, row.ranks, cluster);
      if (!network) return network.error();
      networks.emplace(shape, *network);
    }
    placed.push_back({row.kind, row.bytes, row.time, networks.at(shape)});
  }
  return placed;
}

}  // namespace echelon
