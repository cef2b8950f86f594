// The document of the window as a value. Undo keeps copies of it, a session file stores it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/plan_settings.hpp"
#include "gui/session/results.hpp"

namespace echelon::gui {

/// A planning request and one plan, both as flags.
struct Query {
  cli::Settings request;         ///< the job and the search; holds no flag of a plan
  cli::Settings plan;            ///< every flag of a plan once it is priced; also `gpus` if the
                                 ///< request only limits the number of GPUs
  std::set<std::string> locked;  ///< flags of `plan` that constrain the search
  bool follows_best = true;      ///< the plan is the winner of the search

  bool operator==(const Query&) const = default;
};

/// Splits flags of any origin into request and plan; plan flags are locked. Errors about the values
/// name the flag, not the file they came from.
[[nodiscard]] Query query_of(const cli::Settings& settings);
/// The query that gives this plan alone, whatever a search finds. `request`: the flags that it was
/// priced for.
[[nodiscard]] Query query_of_plan(const cli::Settings& request, const PlanResult& plan);
/// The flags of the search: the request and the locked flags of the plan.
[[nodiscard]] cli::Settings search_flags(const Query& query);

/// The file a query was loaded from or saved to, and its content then.
struct Document {
  std::string file;  ///< "" for none
  bool is_session =
      false;  ///< `file` is a session: saving overwrites it (a plan file is only read)
  Query saved;
};

/// True if `query` has changes over `saved`. The plan counts only if it does not follow the best
/// one, which the search finds again.
[[nodiscard]] bool differs(const Query& query, const Query& saved);

/// Undo and redo over queries. Every state knows its document, so undoing the opening of a file
/// returns to the previous file.
class History {
 public:
  /// Discards all other states.
  void reset(Query query);
  /// A new state after an edit of `what`. Consecutive edits of the same field are one undo step,
  /// until end_edit().
  void push(Query query, std::string_view what);
  /// A new state that belongs to another document.
  void load(Query query, std::string file, bool is_session);
  /// The current state was saved to `file`.
  void mark_saved(std::string file);
  void end_edit() { what_.clear(); }
  /// Adds consequences of an edit to its state.
  void amend(Query query);
  [[nodiscard]] const Query& current() const { return states_[at_].query; }
  [[nodiscard]] const Document& document() const { return *states_[at_].document; }
  [[nodiscard]] bool modified() const { return differs(current(), document().saved); }
  [[nodiscard]] bool can_undo() const { return at_ > 0; }
  [[nodiscard]] bool can_redo() const { return at_ + 1 < states_.size(); }
  void undo();
  void redo();

 private:
  struct State {
    Query query;
    std::shared_ptr<Document> document;
  };
  std::vector<State> states_ = {{{}, std::make_shared<Document>()}};
  std::size_t at_ = 0;
  std::string what_;
};

}  // namespace echelon::gui
