// A cluster laid out as a drawing: nodes with their GPUs, links and network tiers, in units that a
// view scales. What the groups of one rank need is drawn; the rest is counted.
#pragma once

#include <QLineF>
#include <QRectF>
#include <QString>
#include <vector>

#include "core/plan/process_grid.hpp"
#include "planner/traffic.hpp"

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
  int node = -1;  ///< it is in; -1 for tiers
  int tier = -1;  ///< of the cluster's tiers(); -1 for what is inside a node
  bool upright = false;
};

struct SceneLink {
  enum class Kind { gpu, nvlink, node_network, network };
  Kind kind = Kind::gpu;
  QLineF line;
  int node = -1;  ///< at its lower end; -1 between tiers
  int tier = -1;  ///< at its upper end
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

/// The ranks `rank` communicates with along `axis`, itself included.
[[nodiscard]] std::vector<int> group_of(const ProcessGrid& grid, TrafficAxis axis, int rank);
/// The same number for all members of a group, neighbours numbered one after the other.
[[nodiscard]] int group_number(const ProcessGrid& grid, TrafficAxis axis, int rank);

/// Nodes drawn, ascending: those that hold the groups of `rank`, that of `first` before the others,
/// then the first ones of the cluster, at most `most`.
[[nodiscard]] std::vector<int> nodes_needed(const ClusterTopology& cluster, const ProcessGrid& grid,
                                            TrafficAxis first, int rank, int most);

[[nodiscard]] TopologyScene scene_of(const ClusterTopology& cluster, const std::vector<int>& nodes);

}  // namespace echelon::gui
