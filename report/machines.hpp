// Catalogs and machines: what `plan topo` and `plan models` show.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/calibration.hpp"
#include "core/model.hpp"
#include "core/model_io.hpp"
#include "report/style.hpp"
#include "topologies/topology.hpp"

namespace echelon {

[[nodiscard]] std::string clusters_text(const std::vector<ClusterTopology>& clusters,
                                        const TextStyle& style);
[[nodiscard]] std::string clusters_json(const std::vector<ClusterTopology>& clusters);
[[nodiscard]] std::string cluster_text(const ClusterTopology& cluster, const TextStyle& style);
[[nodiscard]] std::string cluster_json(const ClusterTopology& cluster);

struct ListedModel {
  CatalogModel entry;
  ModelSpec spec;
};
[[nodiscard]] std::string models_text(const std::vector<ListedModel>& models,
                                      const TextStyle& style);
[[nodiscard]] std::string models_json(const std::vector<ListedModel>& models);

/// One collective of one size. Bytes and bandwidths as nccl-tests counts them.
struct CollectiveRow {
  std::string_view op;
  int ranks = 1;
  int nodes = 1;
  std::int64_t bytes = 0;
  Seconds time;
  BytesPerSecond algorithm_bandwidth;  ///< bytes / time
  BytesPerSecond bus_bandwidth;        ///< × 2(n−1)/n, (n−1)/n or 1, by op
  std::string_view algorithm;          ///< "ring", "tree", "hierarchical", "direct"
};
/// all_reduce, all_gather, reduce_scatter, all_to_all, send_recv.
[[nodiscard]] std::span<const std::string_view> collective_names();
/// `op` is one of collective_names(). All ranks of `cluster` take part when ranks = its GPUs.
/// Source of sizes and factors: nccl-tests doc/PERFORMANCE.md.
[[nodiscard]] CollectiveRow priced_collective(std::string_view op, int ranks, std::int64_t bytes,
                                              const ClusterTopology& cluster,
                                              const Calibration& calibration);
[[nodiscard]] std::string collectives_text(const std::vector<CollectiveRow>& rows,
                                           const ClusterTopology& cluster, const TextStyle& style);
[[nodiscard]] std::string collectives_json(const std::vector<CollectiveRow>& rows);

}  // namespace echelon
