#include "gui/session/planning_session.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "cli/commands/command_line.hpp"
#include "cli/flags/allowed.hpp"
#include "cli/flags/constraints.hpp"
#include "core/base/expects.hpp"
#include "core/base/parse_quantity.hpp"
#include "gui/session/flag_names.hpp"
#include "planner/space/constraints_of_plan.hpp"

namespace echelon::gui {

namespace {

constexpr int kPauseBeforeSearch = 120;  // ms, so that not every step of a slider starts a search

/// Pairs of flags that exclude each other: setting one removes the other.
constexpr std::pair<const char*, const char*> kEitherOr[] = {
    {"gpus", kMaxGpusFlag}, {"global-batch", "global-batch-tokens"}};

/// True if the request only limits the number of GPUs; the plan then has its own.
bool leaves_gpus_open(const Query& query) { return query.request.has(kMaxGpusFlag); }

void set_plan(Query& query, const ParallelPlan& plan) {
  query.plan = cli::settings_of(plan);
  if (leaves_gpus_open(query)) query.plan.set("gpus", {std::to_string(plan.gpus()), "--gpus"});
}

/// Applies `edit` to a plan's flags without `gpus`, which is kept.
template <class Edit>
cli::Settings edit_keeping_gpus(cli::Settings plan, const Edit& edit) {
  const cli::Setting* gpus = plan.find("gpus");
  const std::optional<cli::Setting> kept = gpus ? std::optional(*gpus) : std::nullopt;
  plan.erase("gpus");
  plan = edit(plan);
  if (kept) plan.set("gpus", *kept);
  return plan;
}

/// Removes plan flags that a new value of a request flag invalidates.
void erase_dependent_flags(Query& query, const std::string& flag) {
  const auto erase = [&](std::span<const char* const> names) {
    for (const char* name : names) {
      if (!query.locked.contains(name)) query.plan.erase(name);
    }
  };
  if (flag == "gpus" || flag == kMaxGpusFlag || flag == "cluster") {
    query.plan.erase("gpus");
    erase(std::array{"dp", kZeroGroupFlag});
  }
  if (flag == "model") erase(kPerLayerFlags);
  if (flag == kFrameworkFlag) erase(std::array{"zero", "overlap", "sequence-parallel"});
}

}  // namespace

PlanningSession::PlanningSession(QObject* parent) : QObject(parent), search_(this) {
  waiting_.setSingleShot(true);
  waiting_.setInterval(kPauseBeforeSearch);
  connect(&waiting_, &QTimer::timeout, this, &PlanningSession::search_now);
  connect(&search_, &BackgroundSearch::progressed, this, &PlanningSession::search_progressed);
  connect(&search_, &BackgroundSearch::found, this,
          [this](const SpaceResultPtr& space, bool complete) {
            space_ = space;
            space_is_complete_ = complete;
            answered_flags_ = searched_flags_;
            search_error_.reset();
            // The search may have chosen other states of the plan's precision.
            if (resolved_ && !resolved_->request.recipes.empty()) price();
            follow();
            Q_EMIT space_changed();
            Q_EMIT priced();
          });
  connect(&search_, &BackgroundSearch::failed, this, [this](const Error& error) {
    search_error_ = error;
    space_.reset();
    Q_EMIT space_changed();
    Q_EMIT priced();
  });
  connect(&search_, &BackgroundSearch::finished, this, [this] {
    if (!waiting_.isActive()) Q_EMIT search_ended();
  });
  resolve_request();
}

void PlanningSession::reset(Query query) {
  search_.cancel();
  history_.reset(std::move(query));
  plan_.reset();
  space_.reset();
  searched_flags_ = {};
  search_error_.reset();
  refresh();
}

void PlanningSession::load(Query query, std::string file, bool is_session) {
  history_.load(std::move(query), std::move(file), is_session);
  last_changed_.clear();
  refresh();
}

void PlanningSession::mark_saved(std::string file) {
  history_.mark_saved(std::move(file));
  Q_EMIT edited();
}

void PlanningSession::push(Query query, std::string_view what) {
  if (query == history_.current()) return;
  history_.push(std::move(query), what);
  refresh();
}

void PlanningSession::set_request_flag(const std::string& flag, const std::string& text) {
  Query query = history_.current();
  const cli::Setting* before = query.request.find(flag);
  if (before != nullptr ? before->value == text : text.empty()) return;
  if (text.empty()) {
    query.request.erase(flag);
  } else {
    query.request.set(flag, {text, "--" + flag});
    for (const auto& [one, other] : kEitherOr) {
      if (flag == one) query.request.erase(other);
      if (flag == other) query.request.erase(one);
    }
  }
  erase_dependent_flags(query, flag);
  last_changed_.clear();
  push(std::move(query), flag);
}

void PlanningSession::set_plan_flag(const std::string& flag, const std::string& text) {
  Query query = history_.current();
  const cli::Setting* before = query.plan.find(flag);
  if (before != nullptr ? before->value == text : text.empty()) return;
  if (const Result<PlanRequest> request = request_of_plan(query)) {
    query.plan = edit_keeping_gpus(query.plan, [&](const cli::Settings& plan) {
      return cli::edited(*request, plan, flag, text, query.locked);
    });
  } else if (text.empty()) {
    query.plan.erase(flag);
  } else {
    query.plan.set(flag, {text, "--" + flag});
  }
  query.follows_best = false;
  last_changed_ = flag;
  push(std::move(query), "plan " + flag);
}

void PlanningSession::lock(const std::string& flag, bool locked) {
  Query query = history_.current();
  if (locked) {
    if (!query.plan.has(flag)) return;
    query.locked.insert(flag);
  } else {
    query.locked.erase(flag);
  }
  push(std::move(query), {});
}

void PlanningSession::load_plan(const ParallelPlan& plan) {
  Query query = history_.current();
  set_plan(query, plan);
  query.follows_best = false;
  last_changed_.clear();
  push(std::move(query), {});
}

void PlanningSession::load_scaled(int gpus, const Candidate& candidate) {
  if (!plan_) return;
  Query query = history_.current();
  const auto set = [&](const char* flag, std::int64_t value) {
    query.request.set(flag, {std::to_string(value), std::string("--") + flag});
  };
  query.request.erase(kMaxGpusFlag);
  query.request.erase("global-batch-tokens");
  set("gpus", gpus);
  set("global-batch", plan_->resolved.request.job.global_batch);
  set_plan(query, candidate.plan);
  query.follows_best = false;
  last_changed_.clear();
  push(std::move(query), {});
}

void PlanningSession::follow_best() {
  Query query = history_.current();
  query.follows_best = true;
  if (const Candidate* found = best()) set_plan(query, found->plan);
  last_changed_.clear();
  push(std::move(query), {});
}

void PlanningSession::undo() {
  if (!can_undo()) return;
  history_.undo();
  last_changed_.clear();
  refresh();
}

void PlanningSession::redo() {
  if (!can_redo()) return;
  history_.redo();
  last_changed_.clear();
  refresh();
}

void PlanningSession::cancel_search() {
  const bool was = searching();
  waiting_.stop();
  search_.cancel();
  if (was) Q_EMIT search_ended();
}

void PlanningSession::refresh() {
  resolve_request();
  price();
  search_soon();
  Q_EMIT edited();
  Q_EMIT priced();
}

void PlanningSession::resolve_request() {
  resolved_.reset();
  request_error_.reset();
  Result<cli::ResolvedRequest> resolved = cli::resolve_search(query().request);
  if (!resolved) {
    request_error_ = resolved.error();
    return;
  }
  resolved_ = *std::move(resolved);
  // Locked flags constrain the search, too; an error in them is reported as the plan's, unless it
  // is that the search must not use them.
  const cli::Settings all = search_flags(query());
  const Result<PlanConstraints> pinned = cli::search_constraints_of(all);
  if (pinned) {
    resolved_->request.constraints = *pinned;
  } else if (cli::constraints_of(all)) {
    resolved_.reset();
    request_error_ = pinned.error();
  }
}

PrecisionRecipe PlanningSession::recipe() const {
  EXPECTS(resolved_, "a request without an error");
  const std::vector<PrecisionRecipe>& offered = resolved_->request.recipes;
  const PrecisionRecipe& own = resolved_->request.job.precision;
  if (offered.empty() || !space_) return own;
  const PrecisionRecipe& chosen = space_->resolved.request.job.precision;
  return std::ranges::find(offered, chosen.name, &PrecisionRecipe::name) != offered.end() ? chosen
                                                                                          : own;
}

Result<PlanRequest> PlanningSession::request_of_plan(const Query& query) const {
  if (!resolved_) return *request_error_;
  PlanRequest request = resolved_->request;
  request.job.precision = recipe();
  request.recipes.clear();
  if (const cli::Setting* gpus = query.plan.find("gpus")) {
    const Result<int> count = parse_int(gpus->value, gpus->where);
    if (!count) return count.error();
    const Result<ClusterTopology> sized = request.cluster.resized(*count);
    if (!sized) return sized.error();
    request.cluster = *sized;
    request.max_gpus.reset();
  }
  return request;
}

void PlanningSession::price() {
  plan_error_.reset();
  plan_is_stale_ = true;  // until it is priced for the current request
  if (!resolved_) return;
  const Result<PlanRequest> request = request_of_plan(query());
  const Result<PlanConstraints> pinned = cli::constraints_of(query().plan);
  const auto priced_plan = [&]() -> Result<Candidate> {
    if (!request) return request.error();
    if (!pinned) return pinned.error();
    PlanRequest one = *request;
    one.constraints = *pinned;
    return predict(one);
  };
  const Result<Candidate> candidate = priced_plan();
  if (!candidate) {
    // A plan that follows the best one is replaced when the search finds that.
    if (!query().follows_best || !query().locked.empty()) plan_error_ = candidate.error();
    return;
  }
  // Defaults are not the user's choice: the plan is what the search finds.
  if (query().follows_best && query().plan.all().size() == query().locked.size()) return;
  cli::ResolvedRequest resolved = *resolved_;
  resolved.request = *request;
  plan_ = std::make_shared<const PlanResult>(PlanResult{std::move(resolved), *candidate});
  plan_is_stale_ = false;
  priced_flags_ = search_flags(query());
  Query priced = query();
  set_plan(priced, candidate->plan);
  history_.amend(std::move(priced));
}

const Candidate* PlanningSession::best() const {
  if (!space_ || !resolved_ || space_is_stale()) return nullptr;
  return space_->report.winner();
}

void PlanningSession::follow() {
  if (!query().follows_best || !space_ || space_is_stale()) return;
  const SearchOutcome& report = space_->report;
  const Candidate* shown = report.winner();
  if (shown == nullptr && !report.nearest_infeasible.empty()) {
    shown = &report.nearest_infeasible.front().candidate;
  }
  if (shown == nullptr) return;
  plan_error_.reset();
  // The same plan keeps its object, so that slow views need not restart.
  const bool same = plan_ && !plan_is_stale_ && priced_flags_ == search_flags(query()) &&
                    plan_->candidate.plan == shown->plan;
  if (!same) plan_ = std::make_shared<const PlanResult>(PlanResult{space_->resolved, *shown});
  priced_flags_ = search_flags(query());
  plan_is_stale_ = false;
  Query with = query();
  set_plan(with, shown->plan);
  if (with == query()) return;
  history_.amend(std::move(with));
  Q_EMIT edited();
}

void PlanningSession::search_soon() {
  const cli::Settings wanted = search_flags(query());
  if (resolved_ && wanted == searched_flags_) {
    follow();
    return;
  }
  // The result of the previous search is no longer wanted.
  search_error_.reset();
  searched_flags_ = {};
  if (resolved_ && space_ && space_is_complete_ && wanted == answered_flags_) {
    cancel_search();
    searched_flags_ = wanted;
    follow();
  } else if (resolved_) {
    waiting_.start();
    search_.cancel();
  } else {
    cancel_search();
  }
}

void PlanningSession::search_now() {
  waiting_.stop();
  if (!resolved_) return;
  searched_flags_ = search_flags(query());
  search_.search(*resolved_);
}

std::vector<cli::SliderTick> PlanningSession::stops(const std::string& flag) const {
  const Result<PlanRequest> request = request_of_plan(query());
  if (!request) return {};
  return cli::slider_ticks_of(*request, query().plan, flag, query().locked);
}

std::string PlanningSession::command_of_plan() const {
  cli::Settings all = query().request;
  const Result<PlanRequest> request = request_of_plan(query());
  cli::Settings plan = query().plan;
  if (request && plan.has("gpus")) {
    // The default batch depends on the number of GPUs.
    all.erase(kMaxGpusFlag);
    all.set("global-batch", {std::to_string(request->job.global_batch), "--global-batch"});
    all.erase("global-batch-tokens");
  }
  if (request && !resolved_->request.recipes.empty()) {
    all.set("precision", {request->job.precision.name, "--precision"});
  }
  if (request) {
    plan = edit_keeping_gpus(
        plan, [&](const cli::Settings& rest) { return cli::without_defaults(*request, rest); });
  }
  for (const auto& [flag, setting] : plan.all()) all.set(flag, setting);
  return cli::command_of("predict", all);
}

std::string PlanningSession::command_of_search() const {
  return cli::command_of("search", search_flags(query()));
}

}  // namespace echelon::gui
