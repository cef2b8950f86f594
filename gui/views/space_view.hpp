// All plans of a search over two selectable metrics; default: step time versus memory.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QWidget>

#include "gui/canvas/empty_state.hpp"
#include "gui/canvas/space_canvas.hpp"
#include "gui/session/results.hpp"

namespace echelon::gui {

class SpaceView : public QWidget {
  Q_OBJECT

 public:
  explicit SpaceView(QWidget* parent = nullptr);
  [[nodiscard]] SpaceCanvas& canvas() { return *canvas_; }

 public Q_SLOTS:
  void show_space(SpaceResultPtr space);
  /// Marks this plan, which may be another than those of the space, without a signal.
  void mark(const Candidate& candidate);

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
  EmptyState* page_;
};

}  // namespace echelon::gui
