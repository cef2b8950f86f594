// The cluster as a graph with the plan's ranks on its GPUs, coloured by the group they are in.
#pragma once

#include <QTransform>
#include <optional>
#include <vector>

#include "gui/painted_view.hpp"
#include "gui/shown.hpp"
#include "gui/topology_scene.hpp"

namespace echelon::gui {

/// T C E P D colour by tensor, context, expert, pipeline and data groups. The rank under the
/// cursor, or the clicked one, lights its group (full stop and comma: the next and the previous
/// rank); a link says what it carries. Plus, minus, W, S or
/// Ctrl with the wheel zoom, arrows, the wheel or dragging pan, F shows everything.
class TopologyView : public PaintedView {
  Q_OBJECT

 public:
  explicit TopologyView(QWidget* parent = nullptr);
  void show_plan(PlanShown plan);

  [[nodiscard]] TrafficAxis axis() const { return axis_; }
  void colour_by(TrafficAxis axis);
  [[nodiscard]] const TopologyScene& scene() const { return scene_; }
  /// Ranks that are lit: the group of the rank under the cursor, or of the clicked one.
  [[nodiscard]] std::vector<int> lit() const;
  [[nodiscard]] QString note_at(const QPointF& at) const override;
  [[nodiscard]] QRectF box_of(int rank) const;  ///< on the widget; null when it is not drawn
  [[nodiscard]] QPointF place_of(const SceneLink& link) const;  ///< its middle, on the widget
  [[nodiscard]] double scale() const { return to_widget_.m11(); }

  [[nodiscard]] QSize sizeHint() const override { return {620, 420}; }

 public Q_SLOTS:
  void fit();

 Q_SIGNALS:
  void axis_changed(TrafficAxis axis);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void leaveEvent(QEvent* event) override;

 private:
  void look_at(int rank);  ///< draws the nodes its groups need, as many as stay legible
  void place();            ///< the whole scene in the area
  [[nodiscard]] double fitting_scale() const;
  void zoom(double factor, const QPointF& at);
  void pan(const QPointF& by);
  [[nodiscard]] QRectF area() const;  ///< below the title and above the last line
  [[nodiscard]] const SceneGpu* gpu_at(const QPointF& at) const;
  [[nodiscard]] const SceneLink* link_at(const QPointF& at) const;
  [[nodiscard]] QString rank_note(int rank) const;
  [[nodiscard]] QString link_note(const SceneLink& link) const;
  [[nodiscard]] QString box_note(const SceneBox& box) const;
  [[nodiscard]] int shown_rank() const { return hovered_.value_or(focus_); }
  void draw_links(QPainter& painter) const;
  void draw_boxes(QPainter& painter, bool nodes) const;
  void draw_gpus(QPainter& painter) const;
  void draw_group(QPainter& painter) const;

  PlanShown plan_;
  std::optional<ProcessGrid> grid_;
  std::vector<LinkLoad> loads_;
  TopologyScene scene_;
  TrafficAxis axis_ = TrafficAxis::tp;
  int focus_ = 0;  ///< rank
  std::optional<int> hovered_;
  QTransform to_widget_;
  bool fitted_ = true;
  std::optional<QPointF> dragged_from_;
  bool dragging_ = false;
};

}  // namespace echelon::gui
