// Timeline of one simulated step: a row per queue of every pipeline rank, with zoom and pan.
#pragma once

#include <QImage>
#include <optional>

#include "gui/canvas/gantt.hpp"
#include "gui/canvas/gantt_painter.hpp"
#include "gui/canvas/painted_view.hpp"
#include "gui/session/results.hpp"
#include "gui/session/worker.hpp"

namespace echelon::gui {

/// W/S, +/- and Ctrl+wheel zoom; A/D, arrows and dragging pan; the wheel scrolls the ranks;
/// Ctrl+Shift+wheel changes the row height; F fits the whole step. A click pins a bar, '.' and ','
/// pin the next and previous bar of the row, Ctrl+Up/Down a bar of the next row; Shift+drag
/// measures. The step is simulated while the view is visible, in a worker thread if it is long.
class TimelineView : public PaintedView {
  Q_OBJECT

 public:
  explicit TimelineView(QWidget* parent = nullptr);
  void show_plan(PlanResultPtr plan);

  [[nodiscard]] const GanttPtr& gantt() const { return gantt_; }  ///< null until simulated
  [[nodiscard]] const GanttWindow& window() const { return window_; }
  [[nodiscard]] QRectF plot() const;  ///< where bars are drawn
  [[nodiscard]] QString title() const;
  [[nodiscard]] QString tooltip_at(const QPointF& at) const override;
  [[nodiscard]] QString pinned() const;                   ///< text of the last line; may be empty
  [[nodiscard]] std::optional<double> measured() const;   ///< seconds between the ends of a drag
  [[nodiscard]] QRectF bar_rect(int row, int bar) const;  ///< for the current window

  [[nodiscard]] QSize sizeHint() const override { return {900, 360}; }

 public Q_SLOTS:
  void fit();

 Q_SIGNALS:
  void simulated();  ///< gantt() is that of the plan shown last

 protected:
  void changeEvent(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void showEvent(QShowEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void leaveEvent(QEvent* event) override;

 private:
  struct Place {  ///< a bar
    std::size_t row = 0;
    std::size_t bar = 0;
    bool operator==(const Place&) const = default;
  };
  void simulate();
  void set_gantt(GanttPtr gantt);
  [[nodiscard]] std::optional<Place> place_at(const QPointF& at) const;
  void zoom(double factor, double at_x);
  void pan(double pixels_x, double pixels_y);
  void pin(const Place& place);  ///< and scrolls to it
  void pin_neighbour(int bars, int rows);
  void clamp_window();    ///< to the chart
  void window_changed();  ///< redraws the image
  [[nodiscard]] double min_per_unit() const;
  void draw_names(QPainter& painter) const;
  void draw_ruler(QPainter& painter) const;
  void draw_marks(QPainter& painter) const;
  [[nodiscard]] QString hint() const;

  PlanResultPtr plan_;
  bool stale_ = false;  ///< gantt_ does not belong to plan_
  bool too_long_ = false;
  GanttPtr gantt_;
  TimePrediction predicted_;  ///< of the plan in gantt_
  GanttWindow window_;
  QImage image_;
  std::optional<double> drawn_;  ///< device pixel ratio of image_; empty if it is outdated
  std::optional<Place> hovered_;
  std::optional<Place> pinned_;
  std::optional<QPointF> dragged_from_;
  bool dragging_ = false;
  std::optional<std::pair<double, double>> measure_;  ///< seconds
  bool measuring_ = false;
  Worker simulation_;
};

}  // namespace echelon::gui
