#include "gui/desk.hpp"

#include <memory>
#include <utility>

#include "cli/constraints.hpp"
#include "planner/pinning.hpp"

namespace echelon::gui {

namespace {

constexpr int kPauseBeforeSearch = 120;  // ms: a slider that moves starts no search at every step

/// Where the question leaves the number of GPUs open, a plan says it.
bool leaves_gpus_open(const Sheet& sheet) { return sheet.question.has("gpus-at-most"); }

void set_plan(Sheet& sheet, const ParallelPlan& plan) {
  sheet.plan = cli::settings_of(plan);
  if (leaves_gpus_open(sheet)) sheet.plan.set("gpus", {std::to_string(plan.gpus()), "--gpus"});
}

/// `edit` of a plan's flags that leaves their number of GPUs alone.
template <class Edit>
cli::Settings beside_gpus(cli::Settings plan, const Edit& edit) {
  const cli::Setting* gpus = plan.find("gpus");
  const std::optional<cli::Setting> kept = gpus ? std::optional(*gpus) : std::nullopt;
  plan.erase("gpus");
  plan = edit(plan);
  if (kept) plan.set("gpus", *kept);
  return plan;
}

/// Without what a new value of a question's flag makes wrong.
void free_followers(Sheet& sheet, const std::string& flag) {
  const auto free = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!sheet.locked.contains(name)) sheet.plan.erase(name);
    }
  };
  if (flag == "gpus" || flag == "gpus-at-most" || flag == "cluster") {
    sheet.plan.erase("gpus");
    free({"dp", "shard-group"});
  }
  if (flag == "model") free({"layers-per-stage", "recompute-layers", "selective-layers"});
  if (flag == "stack") free({"zero", "overlap", "sequence-parallel"});
}

}  // namespace

Desk::Desk(QObject* parent) : QObject(parent), searcher_(this) {
  waiting_.setSingleShot(true);
  waiting_.setInterval(kPauseBeforeSearch);
  connect(&waiting_, &QTimer::timeout, this, &Desk::search_now);
  connect(&searcher_, &Searcher::progressed, this, &Desk::search_progressed);
  connect(&searcher_, &Searcher::found, this, [this](const SpaceShown& space, bool whole) {
    space_ = space;
    space_is_whole_ = whole;
    answered_ = searched_;
    search_error_.reset();
    follow();
    Q_EMIT space_found();
    Q_EMIT priced();
  });
  connect(&searcher_, &Searcher::failed, this, [this](const Error& error) {
    search_error_ = error;
    space_.reset();
    Q_EMIT space_found();
    Q_EMIT priced();
  });
  connect(&searcher_, &Searcher::finished, this, [this] {
    if (!waiting_.isActive()) Q_EMIT search_ended();
  });
  understand_question();
}

void Desk::open(Sheet sheet) {
  searcher_.cancel();
  history_.begin(std::move(sheet));
  plan_.reset();
  space_.reset();
  searched_ = {};
  search_error_.reset();
  refresh();
}

void Desk::load(Sheet sheet, std::string file, bool session) {
  history_.load(std::move(sheet), std::move(file), session);
  last_changed_.clear();
  refresh();
}

void Desk::saved_as(std::string file) {
  history_.saved_as(std::move(file));
  Q_EMIT edited();
}

void Desk::push(Sheet sheet, std::string_view what) {
  if (sheet == history_.now()) return;
  history_.push(std::move(sheet), what);
  refresh();
}

void Desk::ask(const std::string& flag, const std::string& text) {
  Sheet sheet = history_.now();
  const cli::Setting* before = sheet.question.find(flag);
  if (before != nullptr ? before->value == text : text.empty()) return;
  if (text.empty()) {
    sheet.question.erase(flag);
  } else {
    sheet.question.set(flag, {text, "--" + flag});
  }
  free_followers(sheet, flag);
  last_changed_.clear();
  push(std::move(sheet), flag);
}

void Desk::change(const std::string& flag, const std::string& text) {
  Sheet sheet = history_.now();
  const cli::Setting* before = sheet.plan.find(flag);
  if (before != nullptr ? before->value == text : text.empty()) return;
  if (const Result<PlanRequest> request = request_of_plan(sheet)) {
    sheet.plan = beside_gpus(sheet.plan, [&](const cli::Settings& plan) {
      return cli::edited(*request, plan, flag, text, sheet.locked);
    });
  } else if (text.empty()) {
    sheet.plan.erase(flag);
  } else {
    sheet.plan.set(flag, {text, "--" + flag});
  }
  sheet.follows_best = false;
  last_changed_ = flag;
  push(std::move(sheet), "plan " + flag);
}

void Desk::lock(const std::string& flag, bool locked) {
  Sheet sheet = history_.now();
  if (locked) {
    if (!sheet.plan.has(flag)) return;
    sheet.locked.insert(flag);
  } else {
    sheet.locked.erase(flag);
  }
  push(std::move(sheet), {});
}

void Desk::take(const ParallelPlan& plan) {
  Sheet sheet = history_.now();
  set_plan(sheet, plan);
  sheet.follows_best = false;
  last_changed_.clear();
  push(std::move(sheet), {});
}

void Desk::take_best() {
  Sheet sheet = history_.now();
  sheet.follows_best = true;
  if (const Candidate* found = best()) set_plan(sheet, found->plan);
  last_changed_.clear();
  push(std::move(sheet), {});
}

void Desk::undo() {
  if (!can_undo()) return;
  history_.undo();
  last_changed_.clear();
  refresh();
}

void Desk::redo() {
  if (!can_redo()) return;
  history_.redo();
  last_changed_.clear();
  refresh();
}

void Desk::cancel_search() {
  const bool was = searching();
  waiting_.stop();
  searcher_.cancel();
  if (was) Q_EMIT search_ended();
}

void Desk::refresh() {
  understand_question();
  price();
  search_soon();
  Q_EMIT edited();
  Q_EMIT priced();
}

void Desk::understand_question() {
  asked_.reset();
  question_error_.reset();
  Result<cli::Asked> asked = cli::understand(sheet().question);
  if (!asked) {
    question_error_ = asked.error();
    return;
  }
  asked_ = *std::move(asked);
  // What is locked holds for searches around the plan, too; an error in it is the plan's.
  const cli::Settings all = searched(sheet());
  if (const Result<PlanConstraints> pinned = cli::constraints_of(all)) {
    asked_->request.constraints = *pinned;
  }
}

Result<PlanRequest> Desk::request_of_plan(const Sheet& sheet) const {
  if (!asked_) return *question_error_;
  PlanRequest request = asked_->request;
  if (const cli::Setting* gpus = sheet.plan.find("gpus")) {
    const Result<ClusterTopology> sized = request.cluster.resized(std::atoll(gpus->value.c_str()));
    if (!sized) return sized.error();
    request.cluster = *sized;
    request.gpus_at_most.reset();
  }
  return request;
}

void Desk::price() {
  plan_error_.reset();
  plan_is_stale_ = true;  // until it is priced for what is asked now
  if (!asked_) return;
  const Result<PlanRequest> request = request_of_plan(sheet());
  const Result<PlanConstraints> pinned = cli::constraints_of(sheet().plan);
  const auto priced_plan = [&]() -> Result<Candidate> {
    if (!request) return request.error();
    if (!pinned) return pinned.error();
    PlanRequest one = *request;
    one.constraints = *pinned;
    return predict(one);
  };
  const Result<Candidate> candidate = priced_plan();
  if (!candidate) {
    // A plan that follows the best one is replaced as soon as that is known.
    if (!sheet().follows_best || !sheet().locked.empty()) plan_error_ = candidate.error();
    return;
  }
  // Defaults are nobody's choice: the plan is what the search finds.
  if (sheet().follows_best && sheet().plan.all().size() == sheet().locked.size()) return;
  cli::Asked asked = *asked_;
  asked.request = *request;
  plan_ = std::make_shared<const ShownPlan>(ShownPlan{std::move(asked), *candidate});
  plan_is_stale_ = false;
  priced_for_ = searched(sheet());
  Sheet whole = sheet();
  set_plan(whole, candidate->plan);
  history_.amend(std::move(whole));
}

const Candidate* Desk::best() const {
  if (!space_ || !asked_ || space_is_stale()) return nullptr;
  return space_->report.winner();
}

void Desk::follow() {
  if (!sheet().follows_best || !space_ || space_is_stale()) return;
  const SearchOutcome& report = space_->report;
  const Candidate* shown = report.winner();
  if (shown == nullptr && !report.nearest_infeasible.empty()) {
    shown = &report.nearest_infeasible.front().candidate;
  }
  if (shown == nullptr) return;
  plan_error_.reset();
  // Views that take long to draw a plan need not begin again for the same one.
  const bool same = plan_ && !plan_is_stale_ && priced_for_ == searched(sheet()) &&
                    plan_->candidate.plan == shown->plan;
  if (!same) plan_ = std::make_shared<const ShownPlan>(ShownPlan{space_->asked, *shown});
  priced_for_ = searched(sheet());
  plan_is_stale_ = false;
  Sheet with = sheet();
  set_plan(with, shown->plan);
  if (with == sheet()) return;
  history_.amend(std::move(with));
  Q_EMIT edited();
}

void Desk::search_soon() {
  const cli::Settings wanted = searched(sheet());
  if (asked_ && wanted == searched_) {
    follow();
    return;
  }
  // What the search before would still find answers nobody's question.
  search_error_.reset();
  searched_ = {};
  if (asked_ && space_ && space_is_whole_ && wanted == answered_) {
    cancel_search();
    searched_ = wanted;
    follow();
  } else if (asked_) {
    waiting_.start();
    searcher_.cancel();
  } else {
    cancel_search();
  }
}

void Desk::search_now() {
  waiting_.stop();
  if (!asked_) return;
  searched_ = searched(sheet());
  searcher_.search(*asked_);
}

std::vector<cli::Stop> Desk::stops(const std::string& flag) const {
  const Result<PlanRequest> request = request_of_plan(sheet());
  if (!request) return {};
  return cli::stops_of(*request, sheet().plan, flag, sheet().locked);
}

std::string Desk::command_of_plan() const {
  cli::Settings all = sheet().question;
  const Result<PlanRequest> request = request_of_plan(sheet());
  cli::Settings plan = sheet().plan;
  if (request && plan.has("gpus")) {
    // The default batch depends on how many GPUs were asked for.
    all.erase("gpus-at-most");
    all.set("global-batch", {std::to_string(request->job.global_batch), "--global-batch"});
    all.erase("global-batch-tokens");
  }
  if (request) {
    plan = beside_gpus(
        plan, [&](const cli::Settings& rest) { return cli::without_defaults(*request, rest); });
  }
  for (const auto& [flag, setting] : plan.all()) all.set(flag, setting);
  return cli::command_of("predict", all);
}

std::string Desk::command_of_search() const { return cli::command_of("search", searched(sheet())); }

}  // namespace echelon::gui
