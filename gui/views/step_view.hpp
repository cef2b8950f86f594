// The parts of the step time as a waterfall chart.
#pragma once

#include <optional>
#include <vector>

#include "gui/canvas/painted_view.hpp"
#include "gui/session/results.hpp"
#include "report/format.hpp"

namespace echelon::gui {

/// One row per part that takes time, then the step with its prediction band. Up and Down select a
/// row and show its tooltip.
class StepView : public PaintedView {
  Q_OBJECT

 public:
  explicit StepView(QWidget* parent = nullptr);
  void show_plan(PlanResultPtr plan);

  /// Parts with a nonzero time, in row order.
  [[nodiscard]] const std::vector<TimePart>& parts() const { return parts_; }
  /// The bar of a part; row parts().size() is the whole step.
  [[nodiscard]] QRectF bar_of(int row) const;
  [[nodiscard]] QString tooltip_at(const QPointF& at) const override;
  /// Step time, band and evidence.
  [[nodiscard]] QString headline() const;

  [[nodiscard]] std::optional<int> row() const { return row_; }  ///< selected

  [[nodiscard]] QSize sizeHint() const override { return {520, 300}; }

 protected:
  void paintEvent(QPaintEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;

 private:
  struct Frame;
  [[nodiscard]] Frame frame() const;
  void draw_row(QPainter& painter, const Frame& frame, int row) const;
  void draw_total(QPainter& painter, const Frame& frame) const;

  PlanResultPtr plan_;
  std::vector<TimePart> parts_;
  std::optional<int> row_;
  std::vector<int> colours_;  ///< per row: index of its series
};

}  // namespace echelon::gui
