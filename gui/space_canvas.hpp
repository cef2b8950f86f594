// Plans as points over two figures. Qt Charts draws axes and front, this the points: one item per
// point, as its scatter series have, takes ten times as long.
#pragma once

#include <QChartView>
#include <QLineSeries>
#include <QRubberBand>
#include <QValueAxis>
#include <optional>
#include <vector>

#include "gui/shown.hpp"
#include "planner/space.hpp"
#include "report/metrics.hpp"

namespace echelon::gui {

class SpaceCanvas : public QChartView {
  Q_OBJECT

 public:
  explicit SpaceCanvas(QWidget* parent = nullptr);
  void show_space(SpaceShown space);
  void show_figures(Metric x, Metric y);
  void mark(const ParallelPlan& plan);

  /// The plans that matter most: half as much again as the best of a figure; what was zoomed into
  /// is forgotten. Again: the whole space.
  void fit_more();
  /// Where a plan is drawn, in pixels of the view; nothing when it is not in the space.
  [[nodiscard]] std::optional<QPointF> pixel_of(const ParallelPlan& plan) const;
  /// The plan under the pointer.
  [[nodiscard]] const Candidate* hovered() const;
  /// What is said of it.
  [[nodiscard]] QString words_of_hovered() const;
  /// Ranges of the axes, in their units.
  [[nodiscard]] QRectF shown_range() const;

 Q_SIGNALS:
  void chosen(const Candidate& candidate);

 protected:
  void drawForeground(QPainter* painter, const QRectF& rect) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void leaveEvent(QEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  struct Point {
    RankedPlan plan;
    const NearestInfeasible* miss = nullptr;  ///< what does not fit
    QPointF at;                               ///< in units of the axes
  };
  void fit();
  void place_points();
  void set_range(const QRectF& range);
  void zoom(double factor, QPointF pixel);
  void hover(QPointF pixel);
  void step_along_front(int by);
  [[nodiscard]] QPointF pixel(QPointF at) const;
  [[nodiscard]] QPointF unit(QPointF pixel) const;
  [[nodiscard]] const Point* nearest(QPointF pixel, double within) const;
  [[nodiscard]] QString words_of(const Point& point) const;
  void draw_limits(QPainter& painter) const;
  void draw_points(QPainter& painter) const;
  void draw_point(QPainter& painter, const Point& point, QPointF at) const;
  [[nodiscard]] std::optional<double> limit_of(Metric figure) const;

  SpaceShown space_;
  std::vector<Point> points_;  ///< the plainest first: what matters is drawn over it
  Metric figure_x_ = Metric::step;
  Metric figure_y_ = Metric::memory;
  MetricScale scale_x_;
  MetricScale scale_y_;
  QRectF whole_;  ///< range that holds all points
  QRectF core_;   ///< … those that are looked at first
  bool zoomed_ = false;
  std::vector<QRectF> earlier_;  ///< ranges before each zoom
  std::optional<ParallelPlan> marked_;
  std::optional<std::size_t> hovered_;
  QValueAxis* axis_x_;
  QValueAxis* axis_y_;
  QLineSeries* front_;
  QRubberBand* band_;
  std::optional<QPoint> pressed_;
};

}  // namespace echelon::gui
