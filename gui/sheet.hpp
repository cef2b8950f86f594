// What the window works on, as a value: undo keeps copies, sessions are files of it.
#pragma once

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

/// Undo and redo over sheets.
class History {
 public:
  /// Forgets everything else.
  void begin(Sheet sheet);
  /// A new state after an edit of `what`; edits of the same thing in a row are one step back,
  /// until seal().
  void push(Sheet sheet, std::string_view what);
  void seal() { what_.clear(); }
  /// What follows from an edit belongs to it.
  void amend(Sheet sheet) { states_[at_] = std::move(sheet); }
  [[nodiscard]] const Sheet& now() const { return states_[at_]; }
  [[nodiscard]] bool can_undo() const { return at_ > 0; }
  [[nodiscard]] bool can_redo() const { return at_ + 1 < states_.size(); }
  void undo();
  void redo();

 private:
  std::vector<Sheet> states_ = {{}};
  std::size_t at_ = 0;
  std::string what_;
};

}  // namespace echelon::gui
