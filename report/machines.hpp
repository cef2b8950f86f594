// Catalogs and machines, for `plan topo` and `plan models`.
#pragma once

#include <string>
#include <vector>

#include "core/model/model.hpp"
#include "core/model/model_io.hpp"
#include "report/terminal_style.hpp"
#include "topologies/check_cluster.hpp"
#include "topologies/topology.hpp"

namespace echelon {

[[nodiscard]] std::string clusters_text(const std::vector<ClusterTopology>& clusters,
                                        const TextStyle& style);
[[nodiscard]] std::string clusters_json(const std::vector<ClusterTopology>& clusters);
[[nodiscard]] std::string cluster_text(const ClusterTopology& cluster, const TextStyle& style);
[[nodiscard]] std::string cluster_json(const ClusterTopology& cluster);
/// What was verified, unless `brief`, and the warnings.
[[nodiscard]] std::string check_text(const ClusterCheck& check, bool brief, const TextStyle& style);
/// The same as cluster_json, with "verified" and "warnings".
[[nodiscard]] std::string check_json(const ClusterTopology& cluster, const ClusterCheck& check);

struct ListedModel {
  CatalogModel entry;
  ModelSpec spec;
};
[[nodiscard]] std::string models_text(const std::vector<ListedModel>& models,
                                      const TextStyle& style);
[[nodiscard]] std::string models_json(const std::vector<ListedModel>& models);
/// One model: its shapes, where its parameters are, and its model FLOPs in sequences of `sequence`
/// tokens.
[[nodiscard]] std::string model_text(const ModelReading& reading, int sequence,
                                     const TextStyle& style);
/// … its shapes as a model file, which `parse_model` reads.
[[nodiscard]] std::string model_json(const ModelReading& reading, int sequence);

}  // namespace echelon
