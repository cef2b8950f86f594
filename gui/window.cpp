#include "gui/window.hpp"

#include <QStatusBar>
#include <QTimer>
#include <QVBoxLayout>
#include <algorithm>
#include <memory>
#include <utility>

#include "gui/candidates_view.hpp"
#include "gui/compare_view.hpp"
#include "gui/memory_view.hpp"
#include "gui/qt_text.hpp"
#include "gui/rejected_view.hpp"
#include "gui/run_view.hpp"
#include "gui/scaling_view.hpp"
#include "gui/space_view.hpp"
#include "gui/step_view.hpp"
#include "gui/timeline_view.hpp"
#include "gui/topology_view.hpp"
#include "planner/pinning.hpp"
#include "planner/sensitivity.hpp"
#include "planner/why_not.hpp"
#include "report/explain.hpp"
#include "report/words.hpp"

namespace echelon::gui {

namespace {

constexpr int kQuestionWidth = 280;
constexpr int kControlsWidth = 300;

/// Explains the question, and the plan when it is not the answer.
AnswerView::Work explaining(const cli::Asked& asked, const PlanShown& plan) {
  return [asked, plan](const Progress& progress) -> Result<AnswerView::Text> {
    Result<Explanation> found = explain(asked.request, progress);
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

AnswerView::Work changing(const PlanShown& plan) {
  return [plan](const Progress& progress) -> Result<AnswerView::Text> {
    auto all = std::make_shared<const std::vector<Sensitivity>>(
        sensitivities(plan->asked.request, plan->candidate, progress));
    return AnswerView::Text([plan, all](const TextStyle& style) {
      const std::string text =
          sensitivities_text(plan->asked.request, plan->candidate, *all, style);
      return text.empty() ? std::string(
                                "No change of model, batch or machine applies to this "
                                "question.\n")
                          : text;
    });
  };
}

}  // namespace

Window::Window(QWidget* parent) : QMainWindow(parent), desk_(this) {
  setWindowTitle(tr("Echelon"));
  setAcceptDrops(true);
  setDockNestingEnabled(true);
  setDockOptions(AllowTabbedDocks | AllowNestedDocks | GroupedDragging);
  setTabPosition(Qt::AllDockWidgetAreas, QTabWidget::North);
  setCorner(Qt::BottomLeftCorner, Qt::LeftDockWidgetArea);
  setCorner(Qt::BottomRightCorner, Qt::RightDockWidgetArea);
  build_centre();
  build_docks();
  message_ = new QLabel(this);
  message_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  progress_ = new QProgressBar(this);
  progress_->setRange(0, 100);
  progress_->setMaximumSize(180, 14);
  progress_->setAccessibleName(tr("Search"));
  stop_ = new QToolButton(this);
  stop_->setText(tr("Stop"));
  stop_->setToolTip(tr("Stop the search; what was found stays (Esc)"));
  connect(stop_, &QToolButton::clicked, &desk_, &Desk::cancel_search);
  statusBar()->addWidget(message_, 1);
  statusBar()->addPermanentWidget(progress_);
  statusBar()->addPermanentWidget(stop_);
  build_actions();
  connect(&desk_, &Desk::edited, this, &Window::refresh_actions);
  connect(&desk_, &Desk::priced, this, &Window::plan_changed);
  connect(&desk_, &Desk::space_found, this, &Window::space_changed);
  connect(&desk_, &Desk::edited, this, &Window::search_state);
  connect(&desk_, &Desk::search_ended, this, &Window::search_state);
  connect(&desk_, &Desk::search_progressed, this, [this](double share) {
    progress_->setValue(static_cast<int>(100 * share));
    search_state();
  });
  connect(qApp, &QApplication::focusChanged, this, [this](QWidget*, QWidget* now) {
    for (const Hosted& hosted : views_) {
      if (now != nullptr && (hosted.view == now || hosted.view->isAncestorOf(now))) {
        seen_ = hosted.view;
      }
    }
  });
  restore_layout();
  plan_changed();
  search_state();
}

Window::~Window() = default;

QDockWidget* Window::dock(const QString& name, QWidget* inside, Qt::DockWidgetArea area) {
  auto* dock = new QDockWidget(name, this);
  dock->setObjectName(name);
  dock->setWidget(inside);
  addDockWidget(area, dock);
  return dock;
}

Window::Hosted& Window::host(const QString& name, QWidget* view, std::function<void()> show,
                             bool below) {
  Hosted hosted{name, view, std::move(show), nullptr, nullptr, true};
  if (below) {
    QDockWidget* place = dock(name, view, Qt::BottomDockWidgetArea);
    // A tab names it already; a window of its own has the title bar of windows.
    place->setTitleBarWidget(new QWidget(place));
    connect(place, &QDockWidget::topLevelChanged, place, [place](bool floating) {
      place->setTitleBarWidget(floating ? nullptr : new QWidget(place));
    });
    for (const Hosted& before : views_) {
      if (before.dock != nullptr) {
        tabifyDockWidget(before.dock, place);
      }
    }
    connect(place, &QDockWidget::visibilityChanged, this, [this](bool visible) {
      if (visible) bring_up_to_date(false, false);
    });
    hosted.dock = place;
  } else {
    space_tabs_->addTab(view, name);
  }
  views_.push_back(std::move(hosted));
  return views_.back();
}

template <class View>
View* Window::host_space(const QString& name) {
  auto* view = new View(this);
  const auto mark = [this, view] {
    if constexpr (requires(const ParallelPlan& plan) { view->mark(plan); }) {
      if (desk_.plan()) view->mark(desk_.plan()->candidate.plan);
    }
  };
  const auto show = [this, view, mark] {
    view->show_space(desk_.space());
    mark();
  };
  host(name, view, show, false).mark = mark;
  connect(view, &View::chosen, this,
          [this](const Candidate& candidate) { desk_.take(candidate.plan); });
  return view;
}

template <class View>
View* Window::host_plan(const QString& name) {
  auto* view = new View(this);
  host(
      name, view, [this, view] { view->show_plan(desk_.plan()); }, true);
  return view;
}

void Window::build_centre() {
  auto* centre = new QWidget(this);
  auto* column = new QVBoxLayout(centre);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(4);
  card_ = new VerdictCard(centre);
  column->addWidget(card_);
  space_tabs_ = new QTabWidget(centre);
  space_tabs_->setDocumentMode(true);
  column->addWidget(space_tabs_, 1);
  setCentralWidget(centre);
  host_space<SpaceView>(tr("Plans"));
  candidates_ = host_space<CandidatesView>(tr("Table"));
  host_space<RejectedView>(tr("Ruled out"));
  connect(space_tabs_, &QTabWidget::currentChanged, this,
          [this] { bring_up_to_date(false, false); });
}

void Window::build_docks() {
  question_ = new QuestionPanel(desk_, this);
  question_->setMinimumWidth(250);
  QDockWidget* left = dock(tr("Question"), question_, Qt::LeftDockWidgetArea);
  controls_ = new PlanControls(desk_, this);
  controls_->setMinimumWidth(280);
  QDockWidget* right = dock(tr("Configuration"), controls_, Qt::RightDockWidgetArea);
  connect(controls_, &PlanControls::why_not_asked, this, [this] { explain(); });

  host_plan<MemoryView>(tr("Memory"));
  host_plan<StepView>(tr("Step"));
  host_plan<TimelineView>(tr("Timeline"));
  host_plan<TopologyView>(tr("Topology"));
  auto* scaling = new ScalingView(this);
  host(
      tr("Scaling"), scaling, [this, scaling] { scaling->show_question(desk_.plan()); }, true);
  explanation_ = new AnswerView(
      tr("Explanation"), tr("Explain"),
      tr("Explain (Y) walks from one GPU to the best plan, one technique at a time, and says what "
         "is wrong with the configuration on the right."),
      this);
  host(
      tr("Explanation"), explanation_,
      [this] {
        explanation_->prepare(desk_.asked() ? explaining(*desk_.asked(), desk_.plan()) : nullptr);
      },
      true);
  sensitivity_ = new AnswerView(
      tr("Sensitivity"), tr("Search again under each change"),
      tr("What happens to the plan when memory, network, batch or number format change."), this);
  host(
      tr("Sensitivity"), sensitivity_,
      [this] { sensitivity_->prepare(desk_.plan() ? changing(desk_.plan()) : nullptr); }, true);
  for (AnswerView* answer : {explanation_, sensitivity_}) {
    connect(answer, &AnswerView::started, this, &Window::search_state);
    connect(answer, &AnswerView::finished, this, &Window::search_state);
  }
  auto* compare = new CompareView(this);
  host(
      tr("Compare"), compare, [this, compare] { compare->show_pair(pinned_, desk_.plan()); }, true);
  run_ = new RunView(this);
  host(
      tr("Run"), run_, [] {}, true);
  const auto below = std::find_if(views_.begin(), views_.end(),
                                  [](const Hosted& hosted) { return hosted.dock != nullptr; });
  below->dock->raise();
  resizeDocks({left, right}, {kQuestionWidth, kControlsWidth}, Qt::Horizontal);
  resizeDocks({below->dock}, {320}, Qt::Vertical);
}

void Window::raise_view(const QString& name) {
  for (const Hosted& hosted : views_) {
    if (hosted.name != name) continue;
    if (hosted.dock != nullptr) {
      hosted.dock->show();
      hosted.dock->raise();
    } else {
      space_tabs_->setCurrentWidget(hosted.view);
    }
    hosted.view->setFocus(Qt::OtherFocusReason);
  }
  bring_up_to_date(false, false);
}

void Window::raise_first_views() {
  for (bool below : {false, true}) {
    const auto first = std::find_if(views_.begin(), views_.end(), [below](const Hosted& hosted) {
      return (hosted.dock != nullptr) == below;
    });
    if (first != views_.end()) raise_view(first->name);
  }
}

void Window::bring_up_to_date(bool plan, bool space) {
  for (Hosted& hosted : views_) {
    // Views below show the plan, those of the centre the space with the plan marked in it.
    const bool about_space = hosted.dock == nullptr;
    hosted.behind = hosted.behind || (about_space ? space : plan);
    const bool unmarked = about_space && plan && !hosted.behind;
    if (!hosted.view->isVisible()) {
      hosted.behind = hosted.behind || unmarked;
    } else if (hosted.behind) {
      hosted.behind = false;
      hosted.show();
    } else if (unmarked) {
      hosted.mark();
    }
  }
}

void Window::plan_changed() {
  QString doubt;
  if (desk_.question_error()) {
    doubt = desk_.sheet().question.has("model")
                ? tr("What is asked is not complete: see the entry marked on the left.")
                : QString();
  } else if (desk_.plan_error()) {
    doubt = tr("The configuration on the right is no plan; these are the figures of the last one.");
  }
  card_->show_plan(desk_.sheet().question.has("model") ? desk_.plan() : nullptr, desk_.best(),
                   doubt);
  bring_up_to_date(true, false);
  refresh_actions();
}

void Window::space_changed() {
  bring_up_to_date(false, true);
  if (desk_.space() && desk_.space()->report.winner() == nullptr) {
    say(tr("Nothing fits: the configuration on the right comes closest"), true);
  } else if (desk_.space()) {
    const SearchCounts& counts = desk_.space()->report.counts;
    say(tr("%1 configurations looked at, %2 fit, %3 do not")
            .arg(qt_text(grouped(counts.tuples)), qt_text(grouped(counts.fitting)),
                 qt_text(grouped(counts.too_large))));
  }
  search_state();
}

void Window::search_state() {
  const bool busy = desk_.searching();
  progress_->setVisible(busy);
  stop_->setVisible(busy);
  if (!busy) progress_->setValue(0);
  // A key that stops nothing is left to the views.
  if (QAction* stop = action(tr("Stop"))) {
    stop->setEnabled(busy || explanation_->busy() || sensitivity_->busy());
  }
}

void Window::say(const QString& text, bool wrong) {
  QPalette colours = palette();
  if (wrong) colours.setColor(QPalette::WindowText, error_colour(colours));
  message_->setPalette(colours);
  message_->setText(text);
}

void Window::pin_plan() {
  pinned_ = desk_.plan();
  bring_up_to_date(true, false);
  say(tr("Pinned: compare shows it beside whatever comes next"));
}

/// The text begins with what is wrong with the plan shown where that is not the best one.
void Window::explain() {
  raise_view(tr("Explanation"));
  explanation_->start();
}

}  // namespace echelon::gui
