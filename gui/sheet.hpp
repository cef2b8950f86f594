// What the window works on, as a value: undo keeps copies, sessions are files of it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/plan_settings.hpp"

namespace echelon::gui {

/// A question and one configuration, both as flags.
struct Sheet {
  cli::Settings question;        ///< no flag of a plan
  cli::Settings plan;            ///< every flag of a plan once it was priced; and, where the
                                 ///< question leaves the number of GPUs open, gpus
  std::set<std::string> locked;  ///< flags of `plan` that a search keeps
  bool follows_best = true;      ///< the plan is whatever a search finds

  bool operator==(const Sheet&) const = default;
};

/// Flags of any origin as a sheet: those of a plan become the plan, locked. Values are from now on
/// the window's own, so errors name the flag.
[[nodiscard]] Sheet sheet_of(const cli::Settings& settings);
/// What a search is asked: the question and what is locked.
[[nodiscard]] cli::Settings searched(const Sheet& sheet);

/// Where a sheet came from or was saved to, and what it was then.
struct Document {
  std::string file;      ///< "" for none
  bool session = false;  ///< saving writes to `file`; a plan file is only read
  Sheet saved;
};

/// Whether somebody would miss `sheet` were there nothing but `saved`: what follows the best plan
/// is found again by a search.
[[nodiscard]] bool differs(const Sheet& sheet, const Sheet& saved);

/// Undo and redo over sheets; every state knows its document, so that going back over the opening
/// of a file goes back to the file before.
class History {
 public:
  /// Forgets everything else.
  void begin(Sheet sheet);
  /// A new state after an edit of `what`; edits of the same thing in a row are one step back,
  /// until seal().
  void push(Sheet sheet, std::string_view what);
  /// A new state, of another document.
  void load(Sheet sheet, std::string file, bool session);
  /// What is now is in `file`.
  void saved_as(std::string file);
  void seal() { what_.clear(); }
  /// What follows from an edit belongs to it.
  void amend(Sheet sheet);
  [[nodiscard]] const Sheet& now() const { return states_[at_].sheet; }
  [[nodiscard]] const Document& document() const { return *states_[at_].document; }
  [[nodiscard]] bool modified() const { return differs(now(), document().saved); }
  [[nodiscard]] bool can_undo() const { return at_ > 0; }
  [[nodiscard]] bool can_redo() const { return at_ + 1 < states_.size(); }
  void undo();
  void redo();

 private:
  struct State {
    Sheet sheet;
    std::shared_ptr<Document> document;
  };
  std::vector<State> states_ = {{{}, std::make_shared<Document>()}};
  std::size_t at_ = 0;
  std::string what_;
};

}  // namespace echelon::gui
