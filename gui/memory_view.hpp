// Peak memory of each pipeline stage, by category, against what a GPU has.
#pragma once

#include <vector>

#include "gui/painted_view.hpp"
#include "gui/shown.hpp"

namespace echelon::gui {

/// One bar per stage; what lies above the usable memory is hatched. Left and right, or a click,
/// choose a stage, whose numbers stand in the second line.
class MemoryView : public PaintedView {
  Q_OBJECT

 public:
  explicit MemoryView(QWidget* parent = nullptr);
  void show_plan(PlanShown plan);

  [[nodiscard]] int stage() const { return stage_; }  ///< the chosen one; -1 with nothing to show
  void choose(int stage);                             ///< clamped to those there are
  [[nodiscard]] QString note_at(const QPointF& at) const override;
  /// From the axis to the top of the reserved peak.
  [[nodiscard]] QRectF bar_of(int stage) const;
  /// What the second line says of the chosen stage.
  [[nodiscard]] QString details() const;

  [[nodiscard]] QSize sizeHint() const override { return {520, 320}; }

 Q_SIGNALS:
  void stage_chosen(int stage);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;

 private:
  struct Frame;
  [[nodiscard]] Frame frame() const;
  [[nodiscard]] int stages() const { return static_cast<int>(reserved_.size()); }
  void draw_axis(QPainter& painter, const Frame& frame) const;
  void draw_bar(QPainter& painter, const Frame& frame, int stage) const;
  void draw_limits(QPainter& painter, const Frame& frame) const;

  PlanShown plan_;
  std::vector<Bytes> reserved_;  ///< per stage: planner/close_up.hpp
  Bytes usable_;
  int stage_ = -1;
};

}  // namespace echelon::gui
