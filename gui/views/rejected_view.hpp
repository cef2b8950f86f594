// Outcomes of all combinations of a search, and the nearest plans that do not fit.
#pragma once

#include <QLabel>
#include <QTreeWidget>
#include <QWidget>

#include "gui/canvas/empty_state.hpp"
#include "gui/session/results.hpp"

namespace echelon::gui {

class RejectedView : public QWidget {
  Q_OBJECT

 public:
  explicit RejectedView(QWidget* parent = nullptr);
  [[nodiscard]] const QTreeWidget& reasons() const { return *reasons_; }
  [[nodiscard]] const QTreeWidget& misses() const { return *misses_; }
  [[nodiscard]] QString proof() const { return proof_->text(); }

 public Q_SLOTS:
  void show_space(SpaceResultPtr space);

 Q_SIGNALS:
  /// The user picked one of the nearest plans that do not fit.
  void chosen(const Candidate& candidate);

 protected:
  void resizeEvent(QResizeEvent* event) override;

 private:
  void fit_columns();

  SpaceResultPtr space_;
  QLabel* proof_;
  QTreeWidget* reasons_;
  QWidget* lower_;  ///< hidden if plans fit
  QTreeWidget* misses_;
  EmptyState* page_;
};

}  // namespace echelon::gui
