// Where the time of one step goes: its parts one after the other, as a waterfall.
#pragma once

#include <vector>

#include "gui/painted_view.hpp"
#include "gui/shown.hpp"
#include "report/format.hpp"

namespace echelon::gui {

/// One row per part that takes time, the step with its band below. Up and down choose a row and
/// show its note.
class StepView : public PaintedView {
  Q_OBJECT

 public:
  explicit StepView(QWidget* parent = nullptr);
  void show_plan(PlanShown plan);

  /// Parts that take time, in the order of the rows.
  [[nodiscard]] const std::vector<TimePart>& parts() const { return parts_; }
  /// The bar of a part; of the whole step for row parts().size().
  [[nodiscard]] QRectF bar_of(int row) const;
  [[nodiscard]] QString note_at(const QPointF& at) const override;
  /// Step, band and kind of number.
  [[nodiscard]] QString headline() const;

  [[nodiscard]] int row() const { return row_; }  ///< chosen; -1: none

  [[nodiscard]] QSize sizeHint() const override { return {520, 300}; }

 protected:
  void paintEvent(QPaintEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;

 private:
  struct Frame;
  [[nodiscard]] Frame frame() const;
  void draw_row(QPainter& painter, const Frame& frame, int row) const;
  void draw_total(QPainter& painter, const Frame& frame) const;

  PlanShown plan_;
  std::vector<TimePart> parts_;
  int row_ = -1;
  std::vector<int> colours_;  ///< per row: index of its series
};

}  // namespace echelon::gui
