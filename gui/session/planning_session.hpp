// State of the window. Every edit goes through it, is priced at once and starts a background
// search.
#pragma once

#include <QObject>
#include <QString>
#include <QTimer>
#include <optional>

#include "gui/session/background_search.hpp"
#include "gui/session/query.hpp"
#include "gui/session/results.hpp"

namespace echelon::gui {

class PlanningSession : public QObject {
  Q_OBJECT

 public:
  explicit PlanningSession(QObject* parent = nullptr);

  /// Starts with `query` and an empty undo history.
  void reset(Query query);
  /// Loads a file or an example as one undo step. `file` may be ""; `is_session`: saving
  /// overwrites it.
  void load(Query query, std::string file = {}, bool is_session = false);
  /// The current query was saved to `file`.
  void mark_saved(std::string file);

  // Edits. `text` as on the command line; "" removes the flag.
  void set_request_flag(const std::string& flag, const std::string& text);
  void set_plan_flag(const std::string& flag, const std::string& text);
  void lock(const std::string& flag, bool locked);
  /// Loads a plan; the search is not affected.
  void load_plan(const ParallelPlan& plan);
  /// Loads a plan of the same job, with the same global batch, on another number of GPUs.
  void load_scaled(int gpus, const Candidate& candidate);
  /// The plan is the best one from now on.
  void follow_best();
  /// Ends the current edit: the next one is a separate undo step.
  void end_edit() { history_.end_edit(); }
  void undo();
  void redo();
  [[nodiscard]] bool can_undo() const { return history_.can_undo(); }
  [[nodiscard]] bool can_redo() const { return history_.can_redo(); }
  void cancel_search();
  /// Starts the search without waiting for further edits.
  void search_now();

  [[nodiscard]] const Query& query() const { return history_.current(); }
  [[nodiscard]] const Document& document() const { return history_.document(); }
  /// Whether the query has changed since it was opened or saved.
  [[nodiscard]] bool modified() const { return history_.modified(); }
  /// The request of the query; empty if there is a request_error().
  [[nodiscard]] const std::optional<cli::ResolvedRequest>& resolved() const { return resolved_; }
  [[nodiscard]] const std::optional<Error>& request_error() const { return request_error_; }
  /// The recipe of precision that plans are priced with: with `--precision FORMAT:any` the one that
  /// the last search chose. Needs resolved().
  [[nodiscard]] PrecisionRecipe recipe() const;
  /// Why the plan flags are no valid plan.
  [[nodiscard]] const std::optional<Error>& plan_error() const { return plan_error_; }
  /// Why the search failed.
  [[nodiscard]] const std::optional<Error>& search_error() const { return search_error_; }
  /// The last valid plan.
  [[nodiscard]] PlanResultPtr plan() const { return plan_; }
  /// True if plan() is not the plan of the current query: that is invalid, or its best plan is not
  /// known yet.
  [[nodiscard]] bool plan_is_stale() const { return plan_ && plan_is_stale_; }
  /// The result of the last search.
  [[nodiscard]] SpaceResultPtr space() const { return space_; }
  /// True if space() belongs to an earlier request.
  [[nodiscard]] bool space_is_stale() const {
    return space_ && answered_flags_ != search_flags(query());
  }
  /// The best plan of the current request; null while it is unknown.
  [[nodiscard]] const Candidate* best() const;
  [[nodiscard]] bool searching() const { return waiting_.isActive() || search_.busy(); }
  /// The plan flag edited last; "" after any other edit.
  [[nodiscard]] const std::string& last_changed() const { return last_changed_; }
  [[nodiscard]] std::vector<cli::SliderTick> stops(const std::string& flag) const;
  /// Command lines that reproduce the plan and the search.
  [[nodiscard]] std::string command_of_plan() const;
  [[nodiscard]] std::string command_of_search() const;

 Q_SIGNALS:
  void edited();  ///< the query or its errors changed
  void priced();  ///< plan() or best() changed
  void space_changed();
  void search_progressed(double share);
  void search_ended();

 private:
  void push(Query query, std::string_view what);
  void resolve_request();
  void price();
  void follow();
  void search_soon();
  void refresh();
  [[nodiscard]] Result<PlanRequest> request_of_plan(const Query& query) const;

  History history_;
  std::optional<cli::ResolvedRequest> resolved_;
  std::optional<Error> request_error_, plan_error_, search_error_;
  PlanResultPtr plan_;
  SpaceResultPtr space_;
  cli::Settings searched_flags_;  ///< flags of the last search started
  cli::Settings answered_flags_;  ///< flags that `space_` is the result of
  cli::Settings priced_flags_;    ///< flags that `plan_` was priced for
  bool space_is_complete_ = false;
  bool plan_is_stale_ = false;
  std::string last_changed_;
  BackgroundSearch search_;
  QTimer waiting_;  ///< delays the search until edits pause
};

}  // namespace echelon::gui
