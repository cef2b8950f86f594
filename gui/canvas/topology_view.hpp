// The cluster as a graph, with the ranks of the plan on its GPUs, coloured by group.
#pragma once

#include <QTransform>
#include <optional>
#include <vector>

#include "gui/canvas/painted_view.hpp"
#include "gui/canvas/topology_scene.hpp"
#include "gui/session/results.hpp"

namespace echelon::gui {

/// T, C, E, P and D colour by tensor, context, expert, pipeline and data groups. The group of the
/// hovered or clicked rank is highlighted ('.' and ',': next and previous rank); the tooltip of a
/// link has its traffic. +/-, W/S and Ctrl+wheel zoom; arrows, the wheel and dragging pan; F fits.
class TopologyView : public PaintedView {
  Q_OBJECT

 public:
  explicit TopologyView(QWidget* parent = nullptr);
  void show_plan(PlanResultPtr plan);

  [[nodiscard]] Axis axis() const { return axis_; }
  void colour_by(Axis axis);
  [[nodiscard]] const TopologyScene& scene() const { return scene_; }
  /// The group of the hovered rank, or else of the clicked one.
  [[nodiscard]] std::vector<int> highlighted_ranks() const;
  [[nodiscard]] QString tooltip_at(const QPointF& at) const override;
  [[nodiscard]] QRectF box_of(int rank) const;  ///< in widget coordinates; null if it is not drawn
  [[nodiscard]] QPointF place_of(
      const SceneLink& link) const;  ///< its centre, in widget coordinates
  [[nodiscard]] double scale() const { return to_widget_.m11(); }

  [[nodiscard]] QSize sizeHint() const override { return {620, 420}; }

 public Q_SLOTS:
  void fit();

 Q_SIGNALS:
  void axis_changed(Axis axis);

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
  void focus_on(int rank);  ///< draws the nodes of its groups, as many as remain legible
  void update_transform();  ///< fits the scene to the area
  [[nodiscard]] double fitting_scale() const;
  void zoom(double factor, const QPointF& at);
  void pan(const QPointF& by);
  [[nodiscard]] QRectF area() const;  ///< between the title and the last line
  [[nodiscard]] const SceneGpu* gpu_at(const QPointF& at) const;
  [[nodiscard]] const SceneLink* link_at(const QPointF& at) const;
  [[nodiscard]] QString rank_tooltip(int rank) const;
  [[nodiscard]] QString link_tooltip(const SceneLink& link) const;
  [[nodiscard]] QString box_tooltip(const SceneBox& box) const;
  [[nodiscard]] int shown_rank() const { return hovered_.value_or(focus_); }
  void draw_links(QPainter& painter) const;
  void draw_boxes(QPainter& painter, bool nodes) const;
  void draw_gpus(QPainter& painter) const;
  void draw_group(QPainter& painter) const;

  PlanResultPtr plan_;
  std::optional<ProcessGrid> grid_;
  std::vector<LinkLoad> loads_;
  TopologyScene scene_;
  Axis axis_ = Axis::tp;
  int focus_ = 0;  ///< rank
  std::optional<int> hovered_;
  QTransform to_widget_;
  bool fitted_ = true;
  std::optional<QPointF> dragged_from_;
  bool dragging_ = false;
};

}  // namespace echelon::gui
