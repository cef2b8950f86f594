#include "gui/sheet.hpp"

#include <utility>

#include "cli/flags.hpp"

namespace echelon::gui {
namespace {

constexpr unsigned kShownFlags = cli::kJob | cli::kLayout | cli::kSearch | cli::kSearchAlone;

}  // namespace

Sheet sheet_of(const cli::Settings& settings) {
  Sheet sheet;
  for (const auto& [name, setting] : settings.all()) {
    const cli::Flag* flag = cli::find_flag(name);
    if (flag == nullptr || (flag->groups & kShownFlags) == 0) continue;
    const cli::Setting own{setting.value, "--" + name};
    if ((flag->groups & cli::kLayout) != 0) {
      sheet.plan.set(name, own);
      sheet.locked.insert(name);
    } else {
      sheet.question.set(name, own);
    }
  }
  return sheet;
}

cli::Settings searched(const Sheet& sheet) {
  cli::Settings all = sheet.question;
  for (const std::string& flag : sheet.locked) {
    if (const cli::Setting* setting = sheet.plan.find(flag)) all.set(flag, *setting);
  }
  return all;
}

bool differs(const Sheet& sheet, const Sheet& saved) {
  if (sheet.question != saved.question || sheet.locked != saved.locked ||
      sheet.follows_best != saved.follows_best) {
    return true;
  }
  return sheet.follows_best ? searched(sheet) != searched(saved) : sheet.plan != saved.plan;
}

void History::begin(Sheet sheet) {
  auto document = std::make_shared<Document>();
  document->saved = sheet;
  states_ = {{std::move(sheet), std::move(document)}};
  at_ = 0;
  seal();
}

void History::load(Sheet sheet, std::string file, bool session) {
  auto document = std::make_shared<Document>(Document{std::move(file), session, sheet});
  states_.resize(at_ + 1);
  states_.push_back({std::move(sheet), std::move(document)});
  ++at_;
  seal();
}

void History::saved_as(std::string file) {
  *states_[at_].document = {std::move(file), true, now()};
  seal();
}

void History::amend(Sheet sheet) {
  const bool as_saved = !modified();
  states_[at_].sheet = std::move(sheet);
  if (as_saved) states_[at_].document->saved = now();
}

void History::push(Sheet sheet, std::string_view what) {
  const bool goes_on = !what.empty() && what == what_ && at_ > 0 && !can_redo();
  what_ = what;
  if (goes_on) {
    states_[at_].sheet = std::move(sheet);
    return;
  }
  states_.resize(at_ + 1);
  states_.push_back({std::move(sheet), states_[at_].document});
  ++at_;
}

void History::undo() {
  if (can_undo()) --at_;
  seal();
}

void History::redo() {
  if (can_redo()) ++at_;
  seal();
}

}  // namespace echelon::gui
