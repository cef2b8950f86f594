#include "gui/app/window.hpp"

#include <QStatusBar>
#include <QTimer>
#include <QVBoxLayout>
#include <algorithm>
#include <memory>
#include <utility>

#include "gui/app/welcome.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/stale_overlay.hpp"
#include "gui/canvas/timeline_view.hpp"
#include "gui/canvas/topology_view.hpp"
#include "gui/run/run_view.hpp"
#include "gui/views/candidates_view.hpp"
#include "gui/views/compare_view.hpp"
#include "gui/views/memory_view.hpp"
#include "gui/views/rejected_view.hpp"
#include "gui/views/scaling_view.hpp"
#include "gui/views/space_view.hpp"
#include "gui/views/step_view.hpp"
#include "planner/explain/sensitivity.hpp"
#include "planner/explain/why_not.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "report/explain.hpp"

namespace echelon::gui {

namespace {

constexpr int kJobWidth = 280;
constexpr int kControlsWidth = 300;
constexpr int kMinJobWidth = 220;
constexpr int kMinControlsWidth = 250;
constexpr int kMinViewHeight = 140;

/// Explains the best plan, and the current plan if it is another one.
AnswerView::Work explain_work(const PlanningSession& session) {
  const PlanResultPtr plan = session.plan_is_stale() ? nullptr : session.plan();
  PlanRequest request = session.resolved()->request;
  request.job.precision = session.recipe();
  request.recipes.clear();
  return [request, plan](const Progress& progress) -> Result<AnswerView::Text> {
    Result<Explanation> found = explain(request, progress);
    if (!found) return found.error();
    auto explanation = std::make_shared<const Explanation>(*std::move(found));
    std::optional<WhyNotAnswer> answer;
    if (plan) {
      const ParallelPlan& shown = plan->candidate.plan;
      answer = WhyNotAnswer{described(shown, TextStyle{}),
                            why_not(explanation->choice.request, pinned_to(shown),
                                    explanation->choice.report.winner())};
    }
    return AnswerView::Text([explanation, answer](const TextStyle& style) {
      std::string text;
      if (answer && answer->answer.verdict != WhyNot::Verdict::winner) {
        text = verdict_text(*explanation, *answer, style) + "\n";
      }
      return text + explain_text(*explanation, style);
    });
  };
}

AnswerView::Work sensitivity_work(const PlanResultPtr& plan) {
  return [plan](const Progress& progress) -> Result<AnswerView::Text> {
    auto all = std::make_shared<const std::vector<Sensitivity>>(
        sensitivities(plan->resolved.request, plan->candidate, progress));
    return AnswerView::Text([plan, all](const TextStyle& style) {
      const std::string text =
          sensitivities_text(plan->resolved.request, plan->candidate, *all, style);
      return text.empty() ? std::string("No sensitivity analysis applies to this plan.\n") : text;
    });
  };
}

}  // namespace

Window::Window(QWidget* parent) : QMainWindow(parent), session_(this), writer_(this) {
  setAcceptDrops(true);
  setDockNestingEnabled(true);
  setDockOptions(AllowTabbedDocks | AllowNestedDocks | GroupedDragging);
  setTabPosition(Qt::AllDockWidgetAreas, QTabWidget::North);
  setCorner(Qt::BottomLeftCorner, Qt::LeftDockWidgetArea);
  setCorner(Qt::BottomRightCorner, Qt::RightDockWidgetArea);
  build_centre();
  build_docks();
  build_status();
  build_menus();
  connect(&session_, &PlanningSession::edited, this, &Window::refresh_actions);
  connect(&session_, &PlanningSession::edited, this, &Window::update_title);
  connect(&session_, &PlanningSession::priced, this, &Window::plan_changed);
  connect(&session_, &PlanningSession::space_changed, this, &Window::space_changed);
  connect(&session_, &PlanningSession::edited, this, &Window::update_progress);
  connect(&session_, &PlanningSession::search_ended, this, &Window::plan_changed);
  connect(&session_, &PlanningSession::search_ended, this, &Window::update_progress);
  connect(&session_, &PlanningSession::search_progressed, this, [this](double share) {
    progress_->setValue(static_cast<int>(100 * share));
    update_progress();
  });
  connect(job_panel_, &JobPanel::left, this, &Window::focus_views);
  connect(controls_, &PlanControls::left, this, &Window::focus_views);
  connect(qApp, &QApplication::focusChanged, this, [this](QWidget*, QWidget* now) {
    for (const ViewEntry& view_entry : views_) {
      if (now != nullptr && (view_entry.view == now || view_entry.view->isAncestorOf(now))) {
        focused_view_ = view_entry.view;
      }
    }
  });
  restore_layout();
  show_recent_files();
  update_title();
  plan_changed();
  update_progress();
}

Window::~Window() = default;

void Window::build_status() {
  message_ = new QLabel(this);
  message_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  const auto bar = [this](const QString& name) {
    auto* made = new QProgressBar(this);
    made->setRange(0, 100);
    made->setMaximumSize(180, 14);
    made->setAccessibleName(name);
    return made;
  };
  const auto button = [this](const QString& text, const QString& help) {
    auto* made = new QToolButton(this);
    made->setText(text);
    made->setToolTip(help);
    return made;
  };
  progress_ = bar(tr("Search"));
  stop_ = button(tr("Stop"), tr("Stop the search and keep the plans found so far (Esc)"));
  connect(stop_, &QToolButton::clicked, &session_, &PlanningSession::cancel_search);
  write_progress_ = bar(tr("File being written"));
  stop_writing_ = button(tr("Cancel"), tr("Cancel writing the file (Esc)"));
  connect(stop_writing_, &QToolButton::clicked, &writer_, &FileWriter::cancel);
  connect(&writer_, &FileWriter::progressed, this,
          [this](double share) { write_progress_->setValue(static_cast<int>(100 * share)); });
  connect(&writer_, &FileWriter::written, this, &Window::file_written);
  connect(&writer_, &FileWriter::finished, this, &Window::update_progress);
  connect(&writer_, &FileWriter::finished, this, &Window::refresh_actions);
  message_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
  statusBar()->addWidget(message_, 1);
  for (QWidget* each :
       std::initializer_list<QWidget*>{progress_, stop_, write_progress_, stop_writing_}) {
    statusBar()->addPermanentWidget(each);
  }
}

QDockWidget* Window::dock(const QString& name, QWidget* inside, Qt::DockWidgetArea area) {
  auto* dock = new QDockWidget(name, this);
  dock->setObjectName(name);
  dock->setWidget(inside);
  addDockWidget(area, dock);
  return dock;
}

Window::ViewEntry& Window::add_view(const QString& name, QWidget* view, std::function<void()> show,
                                    bool below) {
  ViewEntry view_entry{name, view, std::move(show), nullptr, nullptr, nullptr, true};
  if (below) {
    QDockWidget* place = dock(name, view, Qt::BottomDockWidgetArea);
    view->setMinimumHeight(kMinViewHeight);
    // The tab already shows the name; only a floating dock needs a title bar.
    place->setTitleBarWidget(new QWidget(place));
    connect(place, &QDockWidget::topLevelChanged, place, [place](bool floating) {
      place->setTitleBarWidget(floating ? nullptr : new QWidget(place));
    });
    for (const ViewEntry& before : views_) {
      if (before.dock != nullptr) {
        tabifyDockWidget(before.dock, place);
      }
    }
    connect(place, &QDockWidget::visibilityChanged, this, [this](bool visible) {
      if (visible) refresh_views(false, false);
    });
    view_entry.dock = place;
  } else {
    space_tabs_->addTab(view, name);
  }
  views_.push_back(std::move(view_entry));
  return views_.back();
}

template <class View>
View* Window::add_space_view(const QString& name) {
  auto* view = new View(this);
  const auto mark = [this, view] {
    if constexpr (requires(const Candidate& candidate) { view->mark(candidate); }) {
      if (session_.plan()) view->mark(session_.plan()->candidate);
    }
  };
  const auto show = [this, view, mark] {
    view->show_space(session_.space());
    mark();
  };
  ViewEntry& view_entry = add_view(name, view, show, false);
  view_entry.mark = mark;
  view_entry.overlay = new StaleOverlay(*view);
  connect(view, &View::chosen, this,
          [this](const Candidate& candidate) { session_.load_plan(candidate.plan); });
  return view;
}

template <class View>
View* Window::add_plan_view(const QString& name) {
  auto* view = new View(this);
  add_view(
      name, view, [this, view] { view->show_plan(session_.plan()); }, true)
      .overlay = new StaleOverlay(*view);
  return view;
}

void Window::build_centre() {
  auto* centre = new QWidget(this);
  welcome_ = new Welcome(this);
  connect(welcome_, &Welcome::example_chosen, this,
          [this](const Query& query) { session_.load(query); });
  connect(welcome_, &Welcome::file_chosen, this, &Window::open_file);
  connect(welcome_, &Welcome::open_requested, this, &Window::choose_and_open);
  centre_ = new QStackedWidget(this);
  centre_->addWidget(welcome_);
  centre_->addWidget(centre);
  auto* column = new QVBoxLayout(centre);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(4);
  card_ = new SummaryCard(centre);
  column->addWidget(card_);
  space_tabs_ = new QTabWidget(centre);
  space_tabs_->setDocumentMode(true);
  column->addWidget(space_tabs_, 1);
  setCentralWidget(centre_);
  add_space_view<SpaceView>(tr("Plans"));
  candidates_ = add_space_view<CandidatesView>(tr("Table"));
  add_space_view<RejectedView>(tr("Rejected"));
  connect(space_tabs_, &QTabWidget::currentChanged, this, [this] { refresh_views(false, false); });
}

void Window::build_docks() {
  job_panel_ = new JobPanel(session_, this);
  job_panel_->setMinimumWidth(kMinJobWidth);
  QDockWidget* left = dock(tr("Job"), job_panel_, Qt::LeftDockWidgetArea);
  controls_ = new PlanControls(session_, this);
  controls_->setMinimumWidth(kMinControlsWidth);
  QDockWidget* right = dock(tr("Configuration"), controls_, Qt::RightDockWidgetArea);
  connect(controls_, &PlanControls::why_not_requested, this, [this] { explain(); });

  add_plan_view<MemoryView>(tr("Memory"));
  add_plan_view<StepView>(tr("Step"));
  add_plan_view<TimelineView>(tr("Timeline"));
  add_plan_view<TopologyView>(tr("Topology"));
  scaling_ = new ScalingView(this);
  connect(scaling_, &ScalingView::busy_changed, this, &Window::update_progress);
  connect(scaling_, &ScalingView::chosen, &session_, &PlanningSession::load_scaled);
  add_view(
      tr("Scaling"), scaling_, [this] { scaling_->show_plan(session_.plan()); }, true)
      .overlay = new StaleOverlay(*scaling_);
  explanation_ = new AnswerView(
      tr("Explanation"), tr("Explain"),
      tr("Explain (Y) shows the steps from one GPU to the best plan, one technique at a time, and "
         "the problems of the configuration on the right."),
      this);
  add_view(
      tr("Explanation"), explanation_,
      [this] { explanation_->prepare(session_.resolved() ? explain_work(session_) : nullptr); },
      true);
  sensitivity_ = new AnswerView(
      tr("Sensitivity"), tr("Run sensitivity analysis"),
      tr("The effect of changes in memory, network, batch size and precision on the best plan."),
      this);
  add_view(
      tr("Sensitivity"), sensitivity_,
      [this] {
        const bool known = session_.plan() && !session_.plan_is_stale();
        sensitivity_->prepare(known ? sensitivity_work(session_.plan()) : nullptr);
      },
      true);
  for (AnswerView* answer : {explanation_, sensitivity_}) {
    connect(answer, &AnswerView::started, this, &Window::update_progress);
    connect(answer, &AnswerView::finished, this, &Window::update_progress);
  }
  auto* compare = new CompareView(this);
  add_view(
      tr("Compare"), compare, [this, compare] { compare->show_pair(pinned_, session_.plan()); },
      true)
      .overlay = new StaleOverlay(*compare);
  run_ = new RunView(this);
  add_view(
      tr("Run"), run_, [] {}, true);
  const auto below = std::find_if(views_.begin(), views_.end(), [](const ViewEntry& view_entry) {
    return view_entry.dock != nullptr;
  });
  below->dock->raise();
  resizeDocks({left, right}, {kJobWidth, kControlsWidth}, Qt::Horizontal);
  resizeDocks({below->dock}, {320}, Qt::Vertical);
}

void Window::raise_view(const QString& name) {
  for (const ViewEntry& view_entry : views_) {
    if (view_entry.name != name) continue;
    if (view_entry.dock != nullptr) {
      view_entry.dock->show();
      view_entry.dock->raise();
    } else {
      centre_->setCurrentIndex(1);
      space_tabs_->setCurrentWidget(view_entry.view);
    }
    view_entry.view->setFocus(Qt::OtherFocusReason);
  }
  refresh_views(false, false);
}

void Window::focus_views() {
  QWidget* to = focused_view_ != nullptr && focused_view_->isVisible() ? focused_view_ : nullptr;
  if (to == nullptr) to = welcome_->isVisible() ? welcome_ : space_tabs_->currentWidget();
  to->setFocus(Qt::OtherFocusReason);
}

void Window::raise_first_views() {
  for (bool below : {false, true}) {
    const auto first = std::find_if(
        views_.begin(), views_.end(),
        [below](const ViewEntry& view_entry) { return (view_entry.dock != nullptr) == below; });
    if (first != views_.end()) raise_view(first->name);
  }
}

void Window::refresh_views(bool plan, bool space) {
  for (ViewEntry& view_entry : views_) {
    // Views below show the plan; those of the centre show the space with the plan marked.
    const bool about_space = view_entry.dock == nullptr;
    view_entry.stale = view_entry.stale || (about_space ? space : plan);
    const bool unmarked = about_space && plan && !view_entry.stale;
    if (!view_entry.view->isVisible()) {
      view_entry.stale = view_entry.stale || unmarked;
    } else if (view_entry.stale) {
      view_entry.stale = false;
      view_entry.show();
    } else if (unmarked) {
      view_entry.mark();
    }
  }
}

void Window::restore_pinned(const std::optional<Query>& pinned) {
  if (!pinned) return;
  PlanningSession one;
  one.reset(*pinned);
  if (!one.plan()) {
    const std::optional<Error>& why = one.plan_error() ? one.plan_error() : one.request_error();
    if (why) show_status(tr("The pinned plan: %1").arg(qt_text(why->message())), true);
    return;
  }
  pinned_ = one.plan();
  pinned_query_ = pinned;
  refresh_views(true, false);
}

void Window::pin(const PlanResultPtr& plan) {
  pinned_ = plan;
  pinned_query_.reset();
  if (plan) pinned_query_ = query_of_plan(session_.query().request, *plan);
}

void Window::pin_plan() {
  pin(session_.plan());
  refresh_views(true, false);
  show_status(tr("Pinned: the Compare tab shows it next to the current plan."));
}

/// The text starts with the problems of the current plan if it is not the best one.
void Window::explain() {
  raise_view(tr("Explanation"));
  explanation_->start();
}

}  // namespace echelon::gui
