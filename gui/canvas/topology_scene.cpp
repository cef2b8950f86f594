#include "gui/canvas/topology_scene.hpp"

#include <algorithm>
#include <set>

#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "report/format.hpp"
#include "topologies/description/description.hpp"

namespace echelon::gui {
namespace {

constexpr double kGpu = 26;
constexpr double kGpuGap = 4;
constexpr double kNodePad = 6;
constexpr double kIntra = 7;  ///< height of the bar that connects the GPUs
constexpr double kNic = 9;
constexpr double kStub = 5;  ///< between GPU, bar and card
constexpr double kNodeGap = 12;
constexpr double kTierGap = 44;
constexpr double kTier = 12;   ///< width of a tier's bar
constexpr int kOneColumn = 8;  ///< nodes

double width_of_node(int gpus) { return gpus * (kGpu + kGpuGap) - kGpuGap + 2 * kNodePad; }

/// Stacks nodes on the left, the second half of many nodes on the right, and tiers in between.
class SceneBuilder {
 public:
  SceneBuilder(const ClusterTopology& cluster, const std::vector<int>& nodes)
      : cluster_(cluster), machine_(cluster.machine()), nodes_(nodes) {
    const int count = static_cast<int>(nodes.size());
    sides_ = count > kOneColumn ? 2 : 1;
    per_side_ = (count + sides_ - 1) / sides_;
    node_width_ = width_of_node(cluster.gpus_per_node());
    const bool nics = machine_.node.nics > 0;
    node_height_ = 2 * kNodePad + kGpu + kStub + kIntra + (nics ? kStub + kNic : 0);
    for (std::size_t t = 0; t < cluster.tiers().size(); ++t) {
      if (is_nvlink(t) || nics) tiers_.push_back(static_cast<int>(t));
    }
    if (cluster.nodes() == 1) tiers_.clear();
    for (std::size_t column = 0; column < tiers_.size(); ++column) {
      if (!is_shared(tiers_[column])) continue;
      if (shared_tiers_++ == 0) first_shared_ = static_cast<int>(column);
    }
    const auto columns = static_cast<double>(tiers_.size());
    middle_ = columns * (kTierGap + kTier) + kTierGap;
  }

  TopologyScene scene() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) add_node(static_cast<int>(i));
    std::vector<Unit> below;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const int side = side_of(static_cast<int>(i));
      below.push_back({nodes_[i], nodes_[i], side, {}});
    }
    std::vector<Unit> network = below;
    for (std::size_t column = 0; column < tiers_.size(); ++column) {
      const int tier = tiers_[column];
      std::vector<Unit>& from = is_nvlink(static_cast<std::size_t>(tier)) ? below : network;
      from = add_tier(static_cast<int>(column), tier, from);
    }
    out_.nodes = static_cast<int>(nodes_.size());
    out_.more_nodes = cluster_.nodes() - out_.nodes;
    for (const SceneBox& box : out_.boxes) out_.bounds = out_.bounds.united(box.box);
    out_.bounds.adjust(-4, -16, 4, 4);
    return std::move(out_);
  }

 private:
  /// Connected nodes first..last on one side.
  struct Unit {
    int first = 0;
    int last = 0;
    int side = 0;
    QRectF box;  ///< null for a node itself
  };

  [[nodiscard]] bool is_nvlink(std::size_t tier) const {
    return tier < static_cast<std::size_t>(machine_.nvlink_tiers);
  }
  /// Number of nodes in use below one unit of a tier.
  [[nodiscard]] std::int64_t nodes_below(int tier) const {
    const bool whole_domains = tier + 1 >= machine_.nvlink_tiers;
    std::int64_t nodes = whole_domains ? cluster_.domain_gpus() / cluster_.gpus_per_node() : 1;
    for (int t = whole_domains ? machine_.nvlink_tiers : 0; t <= tier; ++t) {
      nodes *= cluster_.tiers()[static_cast<std::size_t>(t)].multiplicity;
    }
    return nodes;
  }
  /// True if one unit of the tier connects all drawn nodes; it is drawn in the middle.
  [[nodiscard]] bool is_shared(int tier) const {
    return nodes_.front() / nodes_below(tier) == nodes_.back() / nodes_below(tier);
  }
  [[nodiscard]] int side_of(int at) const { return at / per_side_; }
  [[nodiscard]] QRectF node_box(int at) const {
    const double x = side_of(at) == 0 ? 0 : node_width_ + middle_;
    return {x, (at % per_side_) * (node_height_ + kNodeGap), node_width_, node_height_};
  }
  [[nodiscard]] int place_of(int node) const {
    return static_cast<int>(std::ranges::lower_bound(nodes_, node) - nodes_.begin());
  }
  [[nodiscard]] double intra_y(const QRectF& node) const {
    return node.top() + kNodePad + kGpu + kStub + kIntra / 2;
  }
  [[nodiscard]] double nic_y(const QRectF& node) const {
    return node.bottom() - kNodePad - kNic / 2;
  }
  /// The edge of a node's box that faces the tiers.
  [[nodiscard]] static double edge(const QRectF& box, int side) {
    return side == 0 ? box.right() : box.left();
  }

  void add_node(int at) {
    const int node = nodes_[static_cast<std::size_t>(at)];
    const QRectF box = node_box(at);
    out_.boxes.push_back({SceneBox::Kind::node, QStringLiteral("node %1").arg(node), box, node});
    const int gpus = cluster_.gpus_per_node();
    const double left = box.left() + kNodePad;
    const double bar_top = box.top() + kNodePad + kGpu + kStub;
    const QRectF bar(left, bar_top, box.width() - 2 * kNodePad, kIntra);
    for (int i = 0; i < gpus; ++i) {
      const QRectF gpu(left + i * (kGpu + kGpuGap), box.top() + kNodePad, kGpu, kGpu);
      out_.gpus.push_back({node * gpus + i, node, gpu});
      out_.links.push_back({SceneLink::Kind::gpu,
                            QLineF(gpu.center().x(), gpu.bottom(), gpu.center().x(), bar_top),
                            node});
    }
    out_.boxes.push_back({SceneBox::Kind::intra, qt_text(machine_.node.interconnect), bar, node});
    const int nics = machine_.node.nics;
    for (int i = 0; i < nics; ++i) {
      const double each = (bar.width() + kGpuGap) / nics;
      const QRectF nic(left + i * each, box.bottom() - kNodePad - kNic, each - kGpuGap, kNic);
      out_.boxes.push_back({SceneBox::Kind::nic, QStringLiteral("nic %1").arg(i), nic, node});
      out_.links.push_back({SceneLink::Kind::gpu,
                            QLineF(nic.center().x(), bar.bottom(), nic.center().x(), nic.top()),
                            node});
    }
  }

  /// Adds the units of a tier and their links to the tier below.
  std::vector<Unit> add_tier(int column, int tier, const std::vector<Unit>& below) {
    const std::int64_t nodes_per_unit = nodes_below(tier);
    const auto unit_of = [&](const Unit& u) { return u.first / nodes_per_unit; };
    const bool shared = is_shared(tier);
    std::vector<Unit> units;
    for (const Unit& u : below) {
      const bool joins = !units.empty() && unit_of(units.back()) == unit_of(u) &&
                         (shared || units.back().side == u.side);
      if (!joins) units.push_back({u.first, u.last, shared ? 0 : u.side, {}});
      units.back().last = u.last;
    }
    for (Unit& unit : units) {
      unit.box = tier_box(column, unit, shared);
      const bool nvlink = is_nvlink(static_cast<std::size_t>(tier));
      out_.boxes.push_back({nvlink ? SceneBox::Kind::nvlink_tier : SceneBox::Kind::network_tier,
                            qt_text(cluster_.tiers()[static_cast<std::size_t>(tier)].name),
                            unit.box,
                            {},
                            tier,
                            true});
    }
    for (const Unit& u : below) {
      const auto unit = std::ranges::find_if(units, [&](const Unit& candidate) {
        return unit_of(candidate) == unit_of(u) && (shared || candidate.side == u.side);
      });
      add_link(tier, u, *unit);
    }
    return units;
  }

  [[nodiscard]] QRectF tier_box(int column, const Unit& unit, bool shared) const {
    const QRectF first = node_box(place_of(unit.first));
    const QRectF last = node_box(place_of(unit.last));
    double top = std::min(first.top(), last.top());
    double bottom = std::max(first.bottom(), last.bottom());
    const double offset = kTierGap + column * (kTierGap + kTier);
    if (shared && sides_ == 2) {
      top = 0;
      bottom = per_side_ * (node_height_ + kNodeGap) - kNodeGap;
      const double between = kTier + 0.5 * kTierGap;
      const double from_middle = (column - first_shared_) - 0.5 * (shared_tiers_ - 1);
      const double x = node_width_ + middle_ / 2 + from_middle * between - kTier / 2;
      return {x, top, kTier, bottom - top};
    }
    const double x = unit.side == 0 ? node_width_ + offset * share()
                                    : node_width_ + middle_ - offset * share() - kTier;
    return {x, top, kTier, bottom - top};
  }
  /// Share of the middle per side.
  [[nodiscard]] double share() const { return sides_ == 2 ? 0.45 : 1.0; }

  void add_link(int tier, const Unit& from, const Unit& to) {
    const bool nvlink = is_nvlink(static_cast<std::size_t>(tier));
    const double end = to.box.center().x();
    if (from.box.isNull()) {
      const QRectF node = node_box(place_of(from.first));
      const double y = nvlink ? intra_y(node) : nic_y(node);
      out_.links.push_back(
          {nvlink ? SceneLink::Kind::nvlink : SceneLink::Kind::node_network,
           QLineF(edge(node, from.side) + (from.side == 0 ? -kNodePad : kNodePad), y, end, y),
           from.first, tier});
      return;
    }
    const double y = from.box.center().y();
    out_.links.push_back({nvlink ? SceneLink::Kind::nvlink : SceneLink::Kind::network,
                          QLineF(from.box.center().x(), y, end, y),
                          {},
                          tier});
  }

  const ClusterTopology& cluster_;
  const MachineDescription& machine_;
  const std::vector<int>& nodes_;
  TopologyScene out_;
  std::vector<int> tiers_;  ///< drawn, from the node outwards
  int first_shared_ = 0;    ///< column
  int shared_tiers_ = 0;
  int sides_ = 1;
  int per_side_ = 1;
  double node_width_ = 0;
  double node_height_ = 0;
  double middle_ = 0;  ///< width between the sides
};

}  // namespace

const SceneGpu* TopologyScene::gpu_of(int rank) const {
  const auto found = std::ranges::find(gpus, rank, &SceneGpu::rank);
  return found == gpus.end() ? nullptr : &*found;
}

int group_number(const ProcessGrid& grid, Axis axis, int rank) {
  const std::vector<int> group = grid.group(axis, rank);
  const int first = group.front();
  const int stride = group.size() > 1 ? group[1] - first : 1;
  const int block = stride * static_cast<int>(group.size());
  return first / block * stride + first % stride;
}

std::vector<int> nodes_needed(const ClusterTopology& cluster, const ProcessGrid& grid, Axis first,
                              int rank, int max_nodes) {
  const auto limit = static_cast<std::size_t>(std::min(max_nodes, cluster.nodes()));
  const int gpus = cluster.gpus_per_node();
  std::set<int> nodes{rank / gpus};
  for (const Axis axis : {first, Axis::tp, Axis::cp, Axis::ep, Axis::pp, Axis::dp}) {
    for (const int member : grid.group(axis, rank)) {
      if (nodes.size() < limit) nodes.insert(member / gpus);
    }
  }
  for (int node = 0; nodes.size() < limit; ++node) nodes.insert(node);
  return {nodes.begin(), nodes.end()};
}

TopologyScene scene_of(const ClusterTopology& cluster, const std::vector<int>& nodes) {
  return SceneBuilder(cluster, nodes).scene();
}

}  // namespace echelon::gui
