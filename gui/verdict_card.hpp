// The plan at a glance: a tile for each figure, and what limits it in words.
#pragma once

#include <QLabel>
#include <QWidget>
#include <vector>

#include "gui/shown.hpp"
#include "report/plan_summary.hpp"

namespace echelon::gui {

class VerdictCard : public QWidget {
  Q_OBJECT

 public:
  explicit VerdictCard(QWidget* parent = nullptr);
  /// `best` may be null. `doubt`: why the figures are not those of what is asked, or ""; they are
  /// dimmed then, and none is green. `wrong`: because something is.
  void show_plan(PlanShown plan, const Candidate* best, const QString& doubt, bool wrong = true);
  [[nodiscard]] const std::vector<StatTile>& metrics() const { return figures_; }
  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] QSize minimumSizeHint() const override;

 protected:
  void paintEvent(QPaintEvent* event) override;
  bool event(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void draw_tile(QPainter& painter, int index) const;
  void draw_sentences(QPainter& painter) const;
  [[nodiscard]] QColor colour_of(const StatTile& figure) const;
  [[nodiscard]] int rows() const;  ///< of tiles: two where six do not fit beside each other
  [[nodiscard]] QRect tile(int index) const;
  [[nodiscard]] int tile_height() const;

  PlanShown plan_;
  std::vector<StatTile> figures_;
  PlanSummary verdict_;
  QString plan_words_, doubt_;
  bool wrong_ = false;
};

}  // namespace echelon::gui
