#include "gui/session/query.hpp"

#include <utility>

#include "cli/flags/table.hpp"

namespace echelon::gui {
namespace {

constexpr unsigned kShownFlags = cli::kJob | cli::kLayout | cli::kSearch | cli::kSearchAlone;

}  // namespace

Query query_of(const cli::Settings& settings) {
  Query query;
  for (const auto& [name, setting] : settings.all()) {
    const cli::Flag* flag = cli::find_flag(name);
    if (flag == nullptr || (flag->groups & kShownFlags) == 0) continue;
    const cli::Setting own{setting.value, "--" + name};
    if ((flag->groups & cli::kLayout) != 0) {
      query.plan.set(name, own);
      query.locked.insert(name);
    } else {
      query.request.set(name, own);
    }
  }
  return query;
}

Query query_of_plan(const cli::Settings& request, const PlanResult& plan) {
  const PlanRequest& priced = plan.resolved.request;
  Query out;
  out.request = request;
  out.request.set("precision", {priced.job.precision.name, "--precision"});
  out.plan = cli::settings_of(plan.candidate.plan);
  out.plan.set("gpus", {std::to_string(priced.cluster.gpus()), "--gpus"});
  out.follows_best = false;
  return out;
}

cli::Settings search_flags(const Query& query) {
  cli::Settings all = query.request;
  for (const std::string& flag : query.locked) {
    if (const cli::Setting* setting = query.plan.find(flag)) all.set(flag, *setting);
  }
  return all;
}

bool differs(const Query& query, const Query& saved) {
  if (query.request != saved.request || query.locked != saved.locked ||
      query.follows_best != saved.follows_best) {
    return true;
  }
  return query.follows_best ? search_flags(query) != search_flags(saved) : query.plan != saved.plan;
}

void History::reset(Query query) {
  auto document = std::make_shared<Document>();
  document->saved = query;
  states_ = {{std::move(query), std::move(document)}};
  at_ = 0;
  end_edit();
}

void History::load(Query query, std::string file, bool is_session) {
  auto document = std::make_shared<Document>(Document{std::move(file), is_session, query});
  states_.resize(at_ + 1);
  states_.push_back({std::move(query), std::move(document)});
  ++at_;
  end_edit();
}

void History::mark_saved(std::string file) {
  *states_[at_].document = {std::move(file), true, current()};
  end_edit();
}

void History::amend(Query query) {
  const bool as_saved = !modified();
  states_[at_].query = std::move(query);
  if (as_saved) states_[at_].document->saved = current();
}

void History::push(Query query, std::string_view what) {
  const bool goes_on = !what.empty() && what == what_ && at_ > 0 && !can_redo();
  what_ = what;
  if (goes_on) {
    states_[at_].query = std::move(query);
    return;
  }
  states_.resize(at_ + 1);
  states_.push_back({std::move(query), states_[at_].document});
  ++at_;
}

void History::undo() {
  if (can_undo()) --at_;
  end_edit();
}

void History::redo() {
  if (can_redo()) ++at_;
  end_edit();
}

}  // namespace echelon::gui
