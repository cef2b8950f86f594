// What the window works on, and what comes of it: every edit goes through here, is priced at once
// and searched beside.
#pragma once

#include <QObject>
#include <QString>
#include <QTimer>
#include <optional>

#include "gui/searcher.hpp"
#include "gui/sheet.hpp"
#include "gui/shown.hpp"

namespace echelon::gui {

class Desk : public QObject {
  Q_OBJECT

 public:
  explicit Desk(QObject* parent = nullptr);

  /// Begins anew; nothing before it can be undone.
  void open(Sheet sheet);
  /// What a file or an example holds, as one step that can be undone. `file` may be ""; `session`:
  /// saving writes to it.
  void load(Sheet sheet, std::string file = {}, bool session = false);
  /// What is now is in that session.
  void saved_as(std::string file);

  // Edits. `text` as on the command line; "" takes the flag away.
  void ask(const std::string& flag, const std::string& text);
  void change(const std::string& flag, const std::string& text);
  void lock(const std::string& flag, bool locked);
  /// Loads a plan; the search goes on around it.
  void take(const ParallelPlan& plan);
  /// The plan follows the best one from now on.
  void take_best();
  /// The edit at hand is over: the next one is a step back of its own.
  void seal() { history_.seal(); }
  void undo();
  void redo();
  [[nodiscard]] bool can_undo() const { return history_.can_undo(); }
  [[nodiscard]] bool can_redo() const { return history_.can_redo(); }
  void cancel_search();
  /// Without waiting for the next edit.
  void search_now();

  [[nodiscard]] const Sheet& sheet() const { return history_.now(); }
  [[nodiscard]] const Document& document() const { return history_.document(); }
  /// Since it was opened or saved.
  [[nodiscard]] bool modified() const { return history_.modified(); }
  /// What is asked, understood; nothing while `question_error()`.
  [[nodiscard]] const std::optional<cli::Asked>& asked() const { return asked_; }
  [[nodiscard]] const std::optional<Error>& question_error() const { return question_error_; }
  /// Why the plan as it stands is none.
  [[nodiscard]] const std::optional<Error>& plan_error() const { return plan_error_; }
  /// Why there is nothing to choose from.
  [[nodiscard]] const std::optional<Error>& search_error() const { return search_error_; }
  /// The last plan that was legal.
  [[nodiscard]] PlanShown plan() const { return plan_; }
  /// … and is not what is asked for now: that is wrong, or its best plan is not known yet.
  [[nodiscard]] bool plan_is_stale() const { return plan_ && plan_is_stale_; }
  /// The last space.
  [[nodiscard]] SpaceShown space() const { return space_; }
  /// … answers an earlier question.
  [[nodiscard]] bool space_is_stale() const { return space_ && answered_ != searched(sheet()); }
  /// The best plan of the question as it stands; null while it is not known.
  [[nodiscard]] const Candidate* best() const;
  [[nodiscard]] bool searching() const { return waiting_.isActive() || searcher_.busy(); }
  /// The flag of the plan that was edited last; "" after anything else.
  [[nodiscard]] const std::string& last_changed() const { return last_changed_; }
  [[nodiscard]] std::vector<cli::Stop> stops(const std::string& flag) const;
  /// Command lines that give what is shown.
  [[nodiscard]] std::string command_of_plan() const;
  [[nodiscard]] std::string command_of_search() const;

 Q_SIGNALS:
  void edited();  ///< the sheet, or why it is wrong
  void priced();  ///< plan() or best()
  void space_found();
  void search_progressed(double share);
  void search_ended();

 private:
  void push(Sheet sheet, std::string_view what);
  void understand_question();
  void price();
  void follow();
  void search_soon();
  void refresh();
  [[nodiscard]] Result<PlanRequest> request_of_plan(const Sheet& sheet) const;

  History history_;
  std::optional<cli::Asked> asked_;
  std::optional<Error> question_error_, plan_error_, search_error_;
  PlanShown plan_;
  SpaceShown space_;
  cli::Settings searched_;    ///< what was searched for last
  cli::Settings answered_;    ///< what `space_` answers
  cli::Settings priced_for_;  ///< what was asked when `plan_` was priced
  bool space_is_whole_ = false;
  bool plan_is_stale_ = false;
  std::string last_changed_;
  Searcher searcher_;
  QTimer waiting_;  ///< until no edit has come for a moment
};

}  // namespace echelon::gui
