// All plans of a search over two figures that can be chosen: step time against memory at first.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QWidget>

#include "gui/placeholder.hpp"
#include "gui/shown.hpp"
#include "gui/space_canvas.hpp"

namespace echelon::gui {

class SpaceView : public QWidget {
  Q_OBJECT

 public:
  explicit SpaceView(QWidget* parent = nullptr);
  [[nodiscard]] SpaceCanvas& canvas() { return *canvas_; }

 public Q_SLOTS:
  void show_space(SpaceShown space);
  /// Rings this plan, if it is here; tells nobody.
  void mark(const ParallelPlan& plan);

 Q_SIGNALS:
  void chosen(const Candidate& candidate);

 protected:
  void changeEvent(QEvent* event) override;

 private:
  void axes_chosen();
  void show_legend();

  QComboBox* x_;
  QComboBox* y_;
  QLabel* legend_;
  SpaceCanvas* canvas_;
  Placeholder* page_;
};

}  // namespace echelon::gui
