// Layout of a cluster drawing: nodes with their GPUs, links and network tiers, in scalable units.
// The nodes of one rank's groups are drawn; the others are counted.
#pragma once

#include <QLineF>
#include <QRectF>
#include <QString>
#include <optional>
#include <vector>

#include "core/plan/process_grid.hpp"
#include "planner/explain/traffic.hpp"

namespace echelon::gui {

struct SceneGpu {
  int rank = 0;
  int node = 0;
  QRectF box;
};

/// Switches, cards and tiers.
struct SceneBox {
  enum class Kind { node, intra, nic, nvlink_tier, network_tier };
  Kind kind = Kind::node;
  QString name;
  QRectF box;
  std::optional<int> node{};  ///< that contains it; none for tiers
  std::optional<int> tier{};  ///< index in the cluster's tiers(); none within a node
  bool upright = false;
};

struct SceneLink {
  enum class Kind { gpu, nvlink, node_network, network };
  Kind kind = Kind::gpu;
  QLineF line;
  std::optional<int> node{};  ///< at its lower end; none between tiers
  std::optional<int> tier{};  ///< at its upper end
};

struct TopologyScene {
  std::vector<SceneGpu> gpus;
  std::vector<SceneBox> boxes;
  std::vector<SceneLink> links;
  QRectF bounds;
  int nodes = 0;       ///< drawn
  int more_nodes = 0;  ///< not drawn

  [[nodiscard]] const SceneGpu* gpu_of(int rank) const;
};

/// The index of a rank's group; all members have the same, neighbouring groups consecutive ones.
[[nodiscard]] int group_number(const ProcessGrid& grid, Axis axis, int rank);

/// The nodes to draw, ascending and at most `max_nodes`: those of the groups of `rank`, that along
/// `first` before the others, then the first nodes of the cluster.
[[nodiscard]] std::vector<int> nodes_needed(const ClusterTopology& cluster, const ProcessGrid& grid,
                                            Axis first, int rank, int max_nodes);

[[nodiscard]] TopologyScene scene_of(const ClusterTopology& cluster, const std::vector<int>& nodes);

}  // namespace echelon::gui
