#include "gui/canvas/topology_view.hpp"

#include <QPainter>
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"
#include "report/format.hpp"

namespace echelon::gui {
namespace {

/// Numbers of nodes to try: the largest that is legible is used.
constexpr std::array<int, 6> kNodesDrawn = {32, 24, 20, 16, 12, 8};
constexpr double kLegibleScale = 0.78;
constexpr double kLargestScale = 2.2;
constexpr double kTopologyEdge = 8;

QString axis_label(Axis axis) {
  switch (axis) {
    case Axis::tp: return TopologyView::tr("tensor (tp)");
    case Axis::cp: return TopologyView::tr("context (cp)");
    case Axis::ep: return TopologyView::tr("expert (ep)");
    case Axis::etp: return TopologyView::tr("expert tensor (etp)");
    case Axis::dp: return TopologyView::tr("data (dp)");
    case Axis::pp: return TopologyView::tr("pipeline (pp)");
    case Axis::expert_dp: return TopologyView::tr("expert data (expert-dp)");
  }
  return {};
}

}  // namespace

TopologyView::TopologyView(QWidget* parent) : PaintedView(tr("Cluster and groups"), parent) {
  setMouseTracking(true);
}

void TopologyView::show_plan(PlanResultPtr plan) {
  plan_ = std::move(plan);
  hovered_.reset();
  scene_ = {};
  loads_.clear();
  grid_.reset();
  if (plan_) {
    grid_.emplace(plan_->candidate.plan);
    loads_ = link_loads(plan_->resolved.request, plan_->candidate.plan);
    focus_on(focus_ < grid_->ranks() ? focus_ : 0);
  }
  update();
}

void TopologyView::focus_on(int rank) {
  focus_ = rank;
  const ClusterTopology& cluster = plan_->resolved.request.cluster;
  for (const int nodes : kNodesDrawn) {
    scene_ = scene_of(cluster, nodes_needed(cluster, *grid_, axis_, rank, nodes));
    if (fitting_scale() >= kLegibleScale) break;
  }
  setAccessibleDescription(rank_tooltip(rank));
  if (fitted_) update_transform();
  update();
}

void TopologyView::colour_by(Axis axis) {
  if (axis == axis_) return;
  axis_ = axis;
  if (plan_) focus_on(focus_);
  Q_EMIT axis_changed(axis);
}

QRectF TopologyView::area() const {
  const double line = QFontMetricsF(font()).height() + 2;
  return QRectF(rect()).adjusted(kTopologyEdge, kTopologyEdge + line, -kTopologyEdge,
                                 -kTopologyEdge - line);
}

double TopologyView::fitting_scale() const {
  const QRectF inside = area();
  if (scene_.bounds.isEmpty() || inside.isEmpty()) return kLargestScale;
  return std::min({kLargestScale, inside.width() / scene_.bounds.width(),
                   inside.height() / scene_.bounds.height()});
}

void TopologyView::update_transform() {
  const double scale = fitting_scale();
  const QPointF middle = area().center() - scale * scene_.bounds.center();
  to_widget_ = QTransform(scale, 0, 0, scale, middle.x(), middle.y());
}

void TopologyView::fit() {
  fitted_ = true;
  if (plan_) focus_on(focus_);
}

std::vector<int> TopologyView::highlighted_ranks() const {
  return plan_ ? grid_->group(axis_, shown_rank()) : std::vector<int>{};
}

QRectF TopologyView::box_of(int rank) const {
  const SceneGpu* gpu = scene_.gpu_of(rank);
  return gpu == nullptr ? QRectF() : to_widget_.mapRect(gpu->box);
}

QPointF TopologyView::place_of(const SceneLink& link) const {
  return to_widget_.map(link.line.center());
}

void TopologyView::draw_links(QPainter& painter) const {
  const QColor text = palette().color(QPalette::WindowText);
  for (const SceneLink& link : scene_.links) {
    const bool nvlink = link.kind == SceneLink::Kind::gpu || link.kind == SceneLink::Kind::nvlink;
    const double width = link.kind == SceneLink::Kind::gpu ? 1.2 : 2.4;
    painter.setPen(
        QPen(nvlink ? with_opacity(good_colour(palette()), 0.7) : with_opacity(text, 0.45), width));
    painter.drawLine(link.line);
  }
}

void TopologyView::draw_boxes(QPainter& painter, bool nodes) const {
  const QColor text = palette().color(QPalette::WindowText);
  QFont small = font();
  small.setPixelSize(9);
  painter.setFont(small);
  const bool legible = scale() > 0.7;
  for (const SceneBox& box : scene_.boxes) {
    if ((box.kind == SceneBox::Kind::node) != nodes) continue;
    QColor fill = palette().color(QPalette::Window);
    switch (box.kind) {
      case SceneBox::Kind::node: break;
      case SceneBox::Kind::intra:
      case SceneBox::Kind::nvlink_tier: fill = good_colour(palette()); break;
      case SceneBox::Kind::nic: fill = with_opacity(text, 0.5); break;
      case SceneBox::Kind::network_tier: fill = palette().color(QPalette::Link); break;
    }
    painter.setPen(box.kind == SceneBox::Kind::node ? QPen(with_opacity(text, 0.3), 1) : Qt::NoPen);
    painter.setBrush(fill);
    painter.drawRoundedRect(box.box, 2, 2);
    painter.setPen(text);
    if (box.kind == SceneBox::Kind::node && legible) {
      painter.drawText(QRectF(box.box.left(), box.box.top() - 11, box.box.width(), 11),
                       Qt::AlignLeft | Qt::AlignVCenter, box.name);
    }
    if (box.upright && legible) {
      constexpr double kRoom = 30;  // on either side of the bar
      painter.drawText(box.box.adjusted(-kRoom, -14, kRoom, 0), Qt::AlignHCenter | Qt::AlignTop,
                       box.name);
    }
  }
}

void TopologyView::draw_gpus(QPainter& painter) const {
  const bool alone = grid_->degree(axis_) == 1;
  const std::vector<int> members = highlighted_ranks();
  QFont small = font();
  small.setPixelSize(9);
  painter.setFont(small);
  const bool legible = scale() > 0.75;
  for (const SceneGpu& gpu : scene_.gpus) {
    QColor fill =
        alone ? QColor(series_colour(7)) : series_colour(group_number(*grid_, axis_, gpu.rank) % 7);
    const bool in_group = std::ranges::find(members, gpu.rank) != members.end();
    const bool dim = hovered_ && !in_group;
    painter.setPen(in_group ? QPen(palette().color(QPalette::WindowText), 2) : Qt::NoPen);
    painter.setBrush(dim ? with_opacity(fill, 0.3) : fill);
    painter.drawRoundedRect(gpu.box, 3, 3);
    if (!legible) continue;
    painter.setPen(dim ? palette().color(QPalette::WindowText) : text_on(fill));
    painter.drawText(gpu.box, Qt::AlignCenter, QString::number(gpu.rank));
  }
}

/// Draws the group's ring order.
void TopologyView::draw_group(QPainter& painter) const {
  const std::vector<int> members = highlighted_ranks();
  painter.setPen(QPen(palette().color(QPalette::WindowText), 2, Qt::DotLine));
  const SceneGpu* before = nullptr;
  for (const int member : members) {
    const SceneGpu* gpu = scene_.gpu_of(member);
    if (gpu != nullptr && before != nullptr) {
      painter.drawLine(before->box.center(), gpu->box.center());
    }
    before = gpu;
  }
}

void TopologyView::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.fillRect(rect(), palette().color(QPalette::Base));
  if (!plan_) {
    draw_message(
        painter, rect(), palette(),
        tr("Choose a model and a cluster: the ranks of the plan appear here on the nodes."));
    return;
  }
  painter.setRenderHint(QPainter::Antialiasing);
  painter.save();
  painter.setClipRect(area());
  painter.setTransform(to_widget_, true);
  draw_boxes(painter, true);
  draw_links(painter);
  draw_boxes(painter, false);
  draw_group(painter);
  draw_gpus(painter);
  painter.restore();

  const ClusterTopology& cluster = plan_->resolved.request.cluster;
  const double line = QFontMetricsF(font()).height() + 2;
  QFont bold = font();
  bold.setBold(true);
  painter.setFont(bold);
  painter.setPen(palette().color(QPalette::WindowText));
  const auto degree = std::int64_t{grid_->degree(axis_)};
  QString title = tr("%1 groups of %2 · %3, %4")
                      .arg(axis_label(axis_))
                      .arg(degree)
                      .arg(qt_text(cluster.name()), qt_text(counted(cluster.gpus(), "GPU")));
  if (scene_.more_nodes > 0) {
    title += tr(" · × %1").arg(qt_text(counted(scene_.more_nodes, "more node")));
  }
  draw_elided_text(painter, QRectF(kTopologyEdge, kTopologyEdge, width() - 2 * kTopologyEdge, line),
                   title);
  painter.setFont(font());
  draw_elided_text(
      painter,
      QRectF(kTopologyEdge, height() - line - kTopologyEdge / 2, width() - 2 * kTopologyEdge, line),
      QString(rank_tooltip(shown_rank())).replace('\n', QStringLiteral(" · ")) +
          tr(" · T C E P D: groups · F: fit"));
}

}  // namespace echelon::gui
