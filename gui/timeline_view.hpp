// The pipeline of one step over time: a row per queue of every pipeline rank, to zoom and to pan.
#pragma once

#include <QImage>
#include <optional>

#include "gui/gantt.hpp"
#include "gui/gantt_painter.hpp"
#include "gui/painted_view.hpp"
#include "gui/shown.hpp"
#include "gui/worker.hpp"

namespace echelon::gui {

/// W and S, plus and minus or Ctrl with the wheel zoom; A and D, arrows or dragging pan; the wheel
/// scrolls the ranks, with Ctrl and Shift it makes their rows higher; F shows everything. A click
/// pins what is under it, full stop and comma the next and the previous bar of the row, with Ctrl
/// up and down that of the next row; dragging with Shift measures. The step is simulated when the
/// view is visible, beside the window when that takes longer than an edit may.
class TimelineView : public PaintedView {
  Q_OBJECT

 public:
  explicit TimelineView(QWidget* parent = nullptr);
  void show_plan(PlanShown plan);

  [[nodiscard]] const GanttShown& gantt() const { return gantt_; }  ///< null until simulated
  [[nodiscard]] const GanttWindow& window() const { return window_; }
  [[nodiscard]] QRectF plot() const;  ///< where bars are drawn
  [[nodiscard]] QString title() const;
  [[nodiscard]] QString note_at(const QPointF& at) const override;
  [[nodiscard]] QString pinned() const;                   ///< what the last line says; may be empty
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
  void take(GanttShown gantt);
  [[nodiscard]] std::optional<Place> place_at(const QPointF& at) const;
  void zoom(double factor, double at_x);
  void pan(double pixels_x, double pixels_y);
  void pin(const Place& place);  ///< and moves the window to it
  void pin_beside(int bars, int rows);
  void settle();  ///< keeps the window on the chart
  void moved();   ///< the window changed: the image has to be drawn again
  [[nodiscard]] double least_per_unit() const;
  void draw_names(QPainter& painter) const;
  void draw_ruler(QPainter& painter) const;
  void draw_marks(QPainter& painter) const;
  [[nodiscard]] QString hint() const;

  PlanShown plan_;
  bool stale_ = false;  ///< gantt_ is not plan_'s
  bool too_long_ = false;
  GanttShown gantt_;
  TimePrediction predicted_;  ///< of the step that gantt_ shows
  GanttWindow window_;
  QImage image_;
  double drawn_ = 0;  ///< device pixel ratio in which image_ shows window_; 0: it does not
  std::optional<Place> hovered_;
  std::optional<Place> pinned_;
  std::optional<QPointF> dragged_from_;
  bool dragging_ = false;
  std::optional<std::pair<double, double>> measure_;  ///< seconds
  bool measuring_ = false;
  Worker simulation_;
};

}  // namespace echelon::gui
