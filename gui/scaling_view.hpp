// The same job on more and on fewer GPUs: tokens per second and what a million of them costs.
#pragma once

#include <QProgressBar>
#include <QPushButton>
#include <QTimer>
#include <optional>
#include <vector>

#include "gui/painted_view.hpp"
#include "gui/shown.hpp"
#include "gui/worker.hpp"
#include "planner/scaling.hpp"

namespace echelon::gui {

/// Searches one number of GPUs after the other beside the window, when it is visible and the
/// question has rested for a moment; points appear as they are found. Left and right choose a
/// point, Enter or a click tells its plan, Escape stops the search.
class ScalingView : public PaintedView {
  Q_OBJECT

 public:
  explicit ScalingView(QWidget* parent = nullptr);
  /// The job of `plan`, and the plan itself stretched over other numbers of GPUs.
  void show_question(PlanShown plan);

  [[nodiscard]] const std::vector<ScalingPoint>& points() const { return points_; }
  [[nodiscard]] bool searching() const { return search_.busy(); }
  /// The number of GPUs that is marked; nothing before the first point.
  [[nodiscard]] std::optional<int> marked() const;
  /// Where the best plan of points()[at] is drawn, or the cross that says there is none.
  [[nodiscard]] QPointF place_of(int at) const;
  [[nodiscard]] QString note_at(const QPointF& at) const override;

  [[nodiscard]] QSize sizeHint() const override { return {520, 360}; }

 public Q_SLOTS:
  void cancel();

 Q_SIGNALS:
  void chosen(int gpus, const echelon::Candidate& best);
  void finished();  ///< all numbers of GPUs were searched

 protected:
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void showEvent(QShowEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;

 private:
  struct Axis;
  struct Frame;
  void search();
  void add(const ScalingPoint& point);
  void end_search();
  void place_controls();
  void mark(int at);
  [[nodiscard]] Frame frame() const;
  [[nodiscard]] int nearest(const QPointF& at) const;  ///< index; -1: none is near
  [[nodiscard]] QString point_note(const ScalingPoint& point) const;
  void draw_axes(QPainter& painter, const Frame& frame) const;
  void draw_rates(QPainter& painter, const Frame& frame) const;
  void draw_costs(QPainter& painter, const Frame& frame) const;

  PlanShown plan_;
  bool stale_ = false;  ///< points_ are not all of plan_'s
  std::vector<ScalingPoint> points_;
  int marked_ = -1;
  QProgressBar progress_;
  QPushButton stop_;
  QTimer rest_;
  Worker search_;
};

}  // namespace echelon::gui
