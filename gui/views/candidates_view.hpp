// Table of the plans of a search, with sorting, filter, copy and export.
#pragma once

#include <QLabel>
#include <QLineEdit>
#include <QTableView>
#include <QWidget>
#include <optional>

#include "gui/canvas/empty_state.hpp"
#include "gui/session/results.hpp"
#include "gui/views/candidates_model.hpp"

namespace echelon::gui {

class CandidatesView : public QWidget {
  Q_OBJECT

 public:
  explicit CandidatesView(QWidget* parent = nullptr);

  /// The filtered rows as CSV, in table order, and the selected rows as tab-separated text.
  [[nodiscard]] std::string csv() const;
  [[nodiscard]] QString selected_rows() const;
  [[nodiscard]] Status save_csv(const QString& path) const;

 public Q_SLOTS:
  void show_space(SpaceResultPtr space);
  /// Selects the row of this plan, if there is one, without a signal.
  void mark(const Candidate& candidate);
  void copy_rows() const;
  void export_csv();

 Q_SIGNALS:
  void chosen(const Candidate& candidate);

 protected:
  void changeEvent(QEvent* event) override;
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  void set_up_table();
  void filter_changed(const QString& text);
  void row_chosen(const QModelIndex& index);
  void count_rows();
  void show_fastest();
  void fit_columns();

  CandidatesModel* model_;
  FilteredCandidates* shown_;
  QLineEdit* filter_;
  QLabel* count_;    ///< number of rows
  QLabel* reason_;   ///< error of the filter
  QLabel* fastest_;  ///< the fastest plan, where another won
  QTableView* table_;
  EmptyState* page_;
  bool marking_ = false;
};

}  // namespace echelon::gui
