// Strong scaling: tokens per second and cost per million tokens over numbers of GPUs.
#pragma once

#include <QProgressBar>
#include <QPushButton>
#include <QTimer>
#include <optional>
#include <vector>

#include "gui/canvas/painted_view.hpp"
#include "gui/session/results.hpp"
#include "gui/session/worker.hpp"
#include "planner/explain/scaling.hpp"

namespace echelon::gui {

/// While visible, searches the numbers of GPUs one after another in a worker thread once edits
/// pause; points appear as they are found. Left/Right select a point, Enter or a click opens its
/// plan, Escape stops the search.
class ScalingView : public PaintedView {
  Q_OBJECT

 public:
  explicit ScalingView(QWidget* parent = nullptr);
  /// Shows the job of `plan`, and the plan itself with another dp per number of GPUs.
  void show_plan(PlanResultPtr plan);

  [[nodiscard]] const std::vector<ScalingPoint>& points() const { return points_; }
  [[nodiscard]] bool searching() const { return search_.busy(); }
  /// The selected number of GPUs; empty before the first point.
  [[nodiscard]] std::optional<int> marked() const;
  /// Position of the best plan of points()[at], or of the cross if there is none.
  [[nodiscard]] QPointF place_of(int at) const;
  [[nodiscard]] QString tooltip_at(const QPointF& at) const override;

  [[nodiscard]] QSize sizeHint() const override { return {520, 360}; }

 public Q_SLOTS:
  void cancel();

 Q_SIGNALS:
  void busy_changed();  ///< searching() changed
  void chosen(int gpus, const echelon::Candidate& best);
  void finished();  ///< all numbers of GPUs are searched

 protected:
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void showEvent(QShowEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;

 private:
  struct LogAxis;
  struct LinearAxis;
  struct Frame;
  void search();
  void add(const ScalingPoint& point);
  void end_search();
  void place_controls();
  void mark(int at);
  [[nodiscard]] Frame frame() const;
  [[nodiscard]] std::optional<int> nearest(const QPointF& at) const;  ///< index
  [[nodiscard]] QString point_tooltip(const ScalingPoint& point) const;
  void draw_axes(QPainter& painter, const Frame& frame) const;
  void draw_rates(QPainter& painter, const Frame& frame) const;
  void draw_costs(QPainter& painter, const Frame& frame) const;

  PlanResultPtr plan_;
  bool stale_ = false;  ///< the search of plan_ is not complete
  std::vector<ScalingPoint> points_;
  std::optional<int> marked_;  ///< index
  QProgressBar progress_;
  QPushButton stop_;
  QTimer rest_;
  Worker search_;
};

}  // namespace echelon::gui
