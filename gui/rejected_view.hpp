// What became of every combination a search looked at, and what would have helped those that lost.
#pragma once

#include <QLabel>
#include <QTreeWidget>
#include <QWidget>

#include "gui/placeholder.hpp"
#include "gui/shown.hpp"

namespace echelon::gui {

class RejectedView : public QWidget {
  Q_OBJECT

 public:
  explicit RejectedView(QWidget* parent = nullptr);
  [[nodiscard]] const QTreeWidget& reasons() const { return *reasons_; }
  [[nodiscard]] const QTreeWidget& misses() const { return *misses_; }
  [[nodiscard]] QString proof() const { return proof_->text(); }

 public Q_SLOTS:
  void show_space(SpaceShown space);

 Q_SIGNALS:
  /// A plan that does not fit was picked among the nearest misses.
  void chosen(const Candidate& candidate);

 protected:
  void resizeEvent(QResizeEvent* event) override;

 private:
  void fit_columns();

  SpaceShown space_;
  QLabel* proof_;
  QTreeWidget* reasons_;
  QWidget* lower_;  ///< hidden where plans fit: then nobody looked for misses
  QTreeWidget* misses_;
  Placeholder* page_;
};

}  // namespace echelon::gui
