// Keys, mouse and tooltips of the topology.
#include <QKeyEvent>
#include <QMouseEvent>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>

#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/topology_view.hpp"
#include "report/format.hpp"
#include "topologies/description/description.hpp"

namespace echelon::gui {
namespace {

constexpr double kTopologyZoom = 0.8;
constexpr double kTopologyNotch = 120;  ///< eighths of a degree

QString rate_text(BytesPerSecond rate) {
  return QStringLiteral("%1 GB/s").arg(rate.in(1_GBps), 0, 'f', rate < 10_GBps ? 1 : 0);
}

/// "12-15", "0, 8, 16, ... 120".
QString rank_list(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return QString::number(ranks.front());
  const bool dense = ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1;
  if (dense) return QStringLiteral("%1-%2").arg(ranks.front()).arg(ranks.back());
  constexpr std::size_t kNamed = 4;
  QStringList names;
  for (std::size_t i = 0; i < std::min(kNamed, ranks.size()); ++i) {
    names << QString::number(ranks[i]);
  }
  if (ranks.size() > kNamed + 1) names << QStringLiteral("...");
  if (ranks.size() > kNamed) names << QString::number(ranks.back());
  return names.join(QStringLiteral(", "));
}

}  // namespace

QString TopologyView::rank_tooltip(int rank) const {
  const Coordinates at = grid_->coordinates(rank);
  const int gpus = plan_->resolved.request.cluster.gpus_per_node();
  const auto along = [&](Axis axis, int value) {
    return QStringLiteral("%1 %2 of %3")
        .arg(qt_text(echelon::name_of(axis)))
        .arg(value)
        .arg(grid_->degree(axis));
  };
  const std::vector<int> group = grid_->group(axis_, rank);
  return tr("rank %1 on node %2, GPU %3\n%4\n%5 group: ranks %6")
      .arg(rank)
      .arg(rank / gpus)
      .arg(rank % gpus)
      .arg(QStringList{along(Axis::tp, at.tp), along(Axis::cp, at.cp), along(Axis::dp, at.dp),
                       along(Axis::pp, at.pp)}
               .join(QStringLiteral(", ")),
           qt_text(echelon::name_of(axis_)), rank_list(group));
}

QString TopologyView::link_tooltip(const SceneLink& link) const {
  const ClusterTopology& cluster = plan_->resolved.request.cluster;
  const Seconds step = plan_->candidate.prediction.time.step;
  if (link.kind == SceneLink::Kind::network) {
    const FabricTier& tier = cluster.tiers()[static_cast<std::size_t>(*link.tier)];
    return tr("link to %1\nlatency %2").arg(qt_text(tier.name), qt_text(duration(tier.latency)));
  }
  const bool outside = link.kind == SceneLink::Kind::node_network;
  const NodeSpec& node = cluster.node();
  const double nodes = std::max(1.0, static_cast<double>(cluster.domain_gpus()) / node.gpus);
  const BytesPerSecond rate = outside ? node.nic * static_cast<double>(node.nics) : node.gpu_link;
  QStringList lines;
  lines << (outside ? tr("%1 of node %2, %3 in total")
                          .arg(qt_text(counted(node.nics, "network card")))
                          .arg(link.node.value_or(0))
                          .arg(rate_text(rate))
                    : tr("%1 of one GPU, %2 per direction")
                          .arg(qt_text(node.interconnect), rate_text(rate)));
  for (const LinkLoad& load : loads_) {
    const Bytes bytes = outside ? load.per_domain / nodes : load.per_gpu;
    if (bytes <= Bytes{}) continue;
    lines << tr("%1: %2 per step, %3 at the full rate (%4 of the step)")
                 .arg(qt_text(echelon::name_of(load.axis)), qt_text(with_gib(bytes)),
                      qt_text(duration(bytes / rate)), qt_text(percent(bytes / rate / step)));
  }
  if (lines.size() == 1) lines << tr("no traffic");
  return lines.join('\n');
}

QString TopologyView::box_tooltip(const SceneBox& box) const {
  const ClusterTopology& cluster = plan_->resolved.request.cluster;
  switch (box.kind) {
    case SceneBox::Kind::node:
      return tr("%1: %2 %3")
          .arg(box.name, qt_text(counted(cluster.gpus_per_node(), "GPU")),
               qt_text(cluster.gpu().name));
    case SceneBox::Kind::intra:
      return tr("%1, %2 per GPU").arg(box.name, rate_text(cluster.node().gpu_link));
    case SceneBox::Kind::nic: return tr("%1, %2").arg(box.name, rate_text(cluster.node().nic));
    case SceneBox::Kind::nvlink_tier:
    case SceneBox::Kind::network_tier: break;
  }
  const FabricTier& tier = cluster.tiers()[static_cast<std::size_t>(*box.tier)];
  QString text = tr("%1: connects %2 units below, oversubscription %3:1, latency %4")
                     .arg(box.name)
                     .arg(tier.multiplicity)
                     .arg(tier.oversubscription)
                     .arg(qt_text(duration(tier.latency)));
  const bool leaf =
      box.kind == SceneBox::Kind::network_tier && box.tier == cluster.machine().nvlink_tiers;
  if (leaf && cluster.rails() > 0) text += tr(", in %1 rails").arg(cluster.rails());
  return text;
}

const SceneGpu* TopologyView::gpu_at(const QPointF& at) const {
  if (!area().contains(at)) return nullptr;
  const QPointF place = to_widget_.inverted().map(at);
  const auto found = std::ranges::find_if(
      scene_.gpus, [&](const SceneGpu& gpu) { return gpu.box.contains(place); });
  return found == scene_.gpus.end() ? nullptr : &*found;
}

const SceneLink* TopologyView::link_at(const QPointF& at) const {
  constexpr double kNear = 4;  // pixels
  const SceneLink* nearest = nullptr;
  double least = kNear;
  for (const SceneLink& link : scene_.links) {
    const QLineF line = to_widget_.map(link.line);
    const QPointF along = line.p2() - line.p1();
    const double length = QPointF::dotProduct(along, along);
    const double share =
        length > 0 ? std::clamp(QPointF::dotProduct(at - line.p1(), along) / length, 0.0, 1.0) : 0;
    const double distance = QLineF(at, line.p1() + share * along).length();
    if (distance < least) {
      least = distance;
      nearest = &link;
    }
  }
  return nearest;
}

QString TopologyView::tooltip_at(const QPointF& at) const {
  if (!plan_ || !area().contains(at)) return {};
  if (const SceneGpu* gpu = gpu_at(at)) return rank_tooltip(gpu->rank);
  if (const SceneLink* link = link_at(at)) return link_tooltip(*link);
  const QPointF place = to_widget_.inverted().map(at);
  for (auto box = scene_.boxes.rbegin(); box != scene_.boxes.rend(); ++box) {
    if (box->box.contains(place)) return box_tooltip(*box);
  }
  return {};
}

void TopologyView::zoom(double factor, const QPointF& at) {
  constexpr double kLeast = 0.05;
  constexpr double kMost = 8;
  const double now = scale();
  const double next = std::clamp(now * factor, kLeast, kMost);
  const QPointF place = to_widget_.inverted().map(at);
  const QPointF offset = at - next * place;
  to_widget_ = QTransform(next, 0, 0, next, offset.x(), offset.y());
  fitted_ = false;
  update();
}

void TopologyView::pan(const QPointF& by) {
  to_widget_ = QTransform(to_widget_.m11(), 0, 0, to_widget_.m22(), to_widget_.dx() + by.x(),
                          to_widget_.dy() + by.y());
  fitted_ = false;
  update();
}

void TopologyView::resizeEvent(QResizeEvent* /*event*/) {
  if (fitted_) fit();
}

void TopologyView::keyPressEvent(QKeyEvent* event) {
  constexpr double kStep = 40;
  switch (event->key()) {
    case Qt::Key_T: return colour_by(Axis::tp);
    case Qt::Key_C: return colour_by(Axis::cp);
    case Qt::Key_E: return colour_by(Axis::ep);
    case Qt::Key_P: return colour_by(Axis::pp);
    case Qt::Key_D: return colour_by(Axis::dp);
    case Qt::Key_W:
    case Qt::Key_Plus:
    case Qt::Key_Equal: return zoom(1 / kTopologyZoom, area().center());
    case Qt::Key_S:
    case Qt::Key_Minus: return zoom(kTopologyZoom, area().center());
    case Qt::Key_Left: return pan({kStep, 0});
    case Qt::Key_Right: return pan({-kStep, 0});
    case Qt::Key_Up: return pan({0, kStep});
    case Qt::Key_Down: return pan({0, -kStep});
    case Qt::Key_Period:
    case Qt::Key_Comma: {
      if (!plan_) return;
      const int next = focus_ + (event->key() == Qt::Key_Period ? 1 : -1);
      hovered_.reset();
      return focus_on(std::clamp(next, 0, grid_->ranks() - 1));
    }
    case Qt::Key_F:
    case Qt::Key_Home: return fit();
    default: QWidget::keyPressEvent(event);
  }
}

void TopologyView::wheelEvent(QWheelEvent* event) {
  event->accept();
  const QPointF turned = event->angleDelta();
  if (event->modifiers().testFlag(Qt::ControlModifier)) {
    return zoom(std::pow(kTopologyZoom, -turned.y() / kTopologyNotch), event->position());
  }
  constexpr double kPixels = 0.4;  // per eighth of a degree
  pan(event->modifiers().testFlag(Qt::ShiftModifier) ? QPointF(kPixels * turned.y(), 0)
                                                     : kPixels * turned);
}

void TopologyView::mousePressEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton || !plan_) return;
  dragged_from_ = event->position();
  dragging_ = false;
}

void TopologyView::mouseMoveEvent(QMouseEvent* event) {
  constexpr double kDrag = 4;  // pixels
  if (!dragged_from_) {
    const SceneGpu* gpu = gpu_at(event->position());
    const std::optional<int> now = gpu == nullptr ? std::nullopt : std::optional(gpu->rank);
    if (now != hovered_) {
      hovered_ = now;
      update();
    }
    return;
  }
  const QPointF by = event->position() - *dragged_from_;
  if (!dragging_ && by.manhattanLength() < kDrag) return;
  dragging_ = true;
  dragged_from_ = event->position();
  setCursor(Qt::ClosedHandCursor);
  pan(by);
}

void TopologyView::mouseReleaseEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton || !dragged_from_) return;
  const SceneGpu* gpu = dragging_ ? nullptr : gpu_at(event->position());
  dragged_from_.reset();
  dragging_ = false;
  unsetCursor();
  if (gpu != nullptr) focus_on(gpu->rank);
}

void TopologyView::leaveEvent(QEvent* event) {
  hovered_.reset();
  update();
  QWidget::leaveEvent(event);
}

}  // namespace echelon::gui
