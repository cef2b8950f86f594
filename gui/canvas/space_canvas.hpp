// Scatter chart of plans over two metrics. Qt Charts draws the axes and the front; the points are
// painted directly, because one graphics item per point takes ten times as long.
#pragma once

#include <QChartView>
#include <QLineSeries>
#include <QRubberBand>
#include <QValueAxis>
#include <optional>
#include <vector>

#include "gui/session/results.hpp"
#include "planner/search/ranked_plans.hpp"
#include "report/metrics.hpp"

namespace echelon::gui {

class SpaceCanvas : public QChartView {
  Q_OBJECT

 public:
  explicit SpaceCanvas(QWidget* parent = nullptr);
  void show_space(SpaceResultPtr space);
  void show_figures(Metric x, Metric y);
  /// Marks this plan, also if it is not in the space.
  void mark(const Candidate& candidate);

  /// Resets the zoom to the best plans, up to 1.5x the best value; called again, to all plans.
  void fit_more();
  /// Position of the marked plan in pixels, at the edge of the chart if it lies beyond.
  [[nodiscard]] std::optional<QPointF> marked_pixel() const;
  /// Position of a plan in pixels; empty if it is not in the space.
  [[nodiscard]] std::optional<QPointF> pixel_of(const ParallelPlan& plan) const;
  /// The plan under the cursor.
  [[nodiscard]] const Candidate* hovered() const;
  /// Its tooltip.
  [[nodiscard]] QString hovered_tooltip() const;
  /// The visible range, in units of the axes.
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
    const NearestInfeasible* miss = nullptr;  ///< set for plans that do not fit
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
  [[nodiscard]] QString point_tooltip(const Point& point) const;
  [[nodiscard]] std::optional<QPointF> values_of(const Candidate& candidate) const;
  void draw_limits(QPainter& painter) const;
  void draw_captions(QPainter& painter) const;
  void draw_points(QPainter& painter) const;
  void draw_point(QPainter& painter, const Point& point, QPointF at) const;
  [[nodiscard]] std::optional<double> limit_of(Metric figure) const;

  SpaceResultPtr space_;
  std::vector<Point> points_;  ///< in drawing order: the most important last
  Metric figure_x_ = Metric::step;
  Metric figure_y_ = Metric::memory;
  MetricScale scale_x_;
  MetricScale scale_y_;
  QRectF whole_;  ///< range of all points
  QRectF core_;   ///< … of the points shown first
  bool zoomed_ = false;
  std::vector<QRectF> zoom_history_;  ///< ranges before each zoom
  std::optional<Candidate> marked_;
  std::optional<std::size_t> hovered_;
  QValueAxis* axis_x_;
  QValueAxis* axis_y_;
  QLineSeries* front_;
  QRubberBand* band_;
  std::optional<QPoint> pressed_;
};

}  // namespace echelon::gui
