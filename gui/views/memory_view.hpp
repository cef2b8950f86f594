// Peak memory of each pipeline stage by category, versus the capacity of the GPU.
#pragma once

#include <optional>
#include <vector>

#include "gui/canvas/painted_view.hpp"
#include "gui/session/results.hpp"

namespace echelon::gui {

/// One bar per stage; memory above the limit of plans that are likely to fit is
/// hatched. Left/Right or a click select a
/// stage, whose values are shown in the second line.
class MemoryView : public PaintedView {
  Q_OBJECT

 public:
  explicit MemoryView(QWidget* parent = nullptr);
  void show_plan(PlanResultPtr plan);

  /// The selected stage; empty without a plan.
  [[nodiscard]] std::optional<int> stage() const { return stage_; }
  void choose(int stage);  ///< clamped to the stages of the plan
  [[nodiscard]] QString tooltip_at(const QPointF& at) const override;
  /// The bar of a stage, up to its reserved peak.
  [[nodiscard]] QRectF bar_of(int stage) const;
  /// The second line: values of the selected stage.
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

  PlanResultPtr plan_;
  std::vector<Bytes> reserved_;  ///< per stage: planner/explain/plan_detail.hpp
  Bytes limit_;     ///< of plans that are likely to fit; --max-memory where it is given
  Bytes capacity_;  ///< of a GPU, or --max-memory: what is to spare refers to it
  std::optional<int> stage_;
};

}  // namespace echelon::gui
