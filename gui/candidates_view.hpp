// The plans of a search as a table that sorts, filters, copies and exports.
#pragma once

#include <QLabel>
#include <QLineEdit>
#include <QTableView>
#include <QWidget>
#include <optional>

#include "gui/candidates_model.hpp"
#include "gui/placeholder.hpp"
#include "gui/shown.hpp"

namespace echelon::gui {

class CandidatesView : public QWidget {
  Q_OBJECT

 public:
  explicit CandidatesView(QWidget* parent = nullptr);

  /// What is shown, in its order, as CSV; and as copied: selected rows with tabs between the cells.
  [[nodiscard]] std::string csv() const;
  [[nodiscard]] QString selected_rows() const;
  [[nodiscard]] Status save_csv(const QString& path) const;

 public Q_SLOTS:
  void show_space(SpaceShown space);
  /// Selects the row of this plan, if it is here; tells nobody.
  void mark(const ParallelPlan& plan);
  void copy_rows() const;
  void export_csv();

 Q_SIGNALS:
  void chosen(const Candidate& candidate);

 protected:
  void changeEvent(QEvent* event) override;
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  void filter_changed(const QString& text);
  void row_chosen(const QModelIndex& index);
  void count_rows();
  void fit_columns();

  CandidatesModel* model_;
  FilteredCandidates* shown_;
  QLineEdit* filter_;
  QLabel* count_;   ///< how many rows are shown
  QLabel* reason_;  ///< why the filter is wrong
  QTableView* table_;
  Placeholder* page_;
  bool marking_ = false;
};

}  // namespace echelon::gui
