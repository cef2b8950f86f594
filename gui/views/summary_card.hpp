// Summary of the plan: a tile per metric and the bottleneck as text.
#pragma once

#include <QLabel>
#include <QWidget>
#include <vector>

#include "gui/session/results.hpp"
#include "report/plan_summary.hpp"

namespace echelon::gui {

class SummaryCard : public QWidget {
  Q_OBJECT

 public:
  explicit SummaryCard(QWidget* parent = nullptr);
  /// `best` may be null. `stale_reason`: why the results are stale, or ""; stale results are dimmed
  /// and uncoloured. `wrong`: the reason is an error.
  void show_plan(PlanResultPtr plan, const Candidate* best, const QString& stale_reason,
                 bool wrong = true);
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
  [[nodiscard]] int rows() const;  ///< of tiles: two if six do not fit in one
  [[nodiscard]] QRect tile(int index) const;
  [[nodiscard]] int tile_height() const;

  PlanResultPtr plan_;
  std::vector<StatTile> figures_;
  PlanSummary summary_;
  QString plan_words_, stale_reason_;
  bool wrong_ = false;
};

}  // namespace echelon::gui
