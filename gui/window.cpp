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
#include "gui/veil.hpp"
#include "gui/welcome.hpp"
#include "planner/pinning.hpp"
#include "planner/sensitivity.hpp"
#include "planner/why_not.hpp"
#include "report/explain.hpp"

namespace echelon::gui {

namespace {

constexpr int kQuestionWidth = 280;
constexpr int kControlsWidth = 300;
constexpr int kLeastQuestion = 220;
constexpr int kLeastControls = 250;
constexpr int kLeastBelow = 140;

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

Window::Window(QWidget* parent) : QMainWindow(parent), desk_(this), writer_(this) {
  setAcceptDrops(true);
  setDockNestingEnabled(true);
  setDockOptions(AllowTabbedDocks | AllowNestedDocks | GroupedDragging);
  setTabPosition(Qt::AllDockWidgetAreas, QTabWidget::North);
  setCorner(Qt::BottomLeftCorner, Qt::LeftDockWidgetArea);
  setCorner(Qt::BottomRightCorner, Qt::RightDockWidgetArea);
  build_centre();
  build_docks();
  build_status();
  build_actions();
  connect(&desk_, &Desk::edited, this, &Window::refresh_actions);
  connect(&desk_, &Desk::edited, this, &Window::name_window);
  connect(&desk_, &Desk::priced, this, &Window::plan_changed);
  connect(&desk_, &Desk::space_found, this, &Window::space_changed);
  connect(&desk_, &Desk::edited, this, &Window::search_state);
  connect(&desk_, &Desk::search_ended, this, &Window::plan_changed);
  connect(&desk_, &Desk::search_ended, this, &Window::search_state);
  connect(&desk_, &Desk::search_progressed, this, [this](double share) {
    progress_->setValue(static_cast<int>(100 * share));
    search_state();
  });
  connect(question_, &QuestionPanel::left, this, &Window::focus_views);
  connect(controls_, &PlanControls::left, this, &Window::focus_views);
  connect(qApp, &QApplication::focusChanged, this, [this](QWidget*, QWidget* now) {
    for (const Hosted& hosted : views_) {
      if (now != nullptr && (hosted.view == now || hosted.view->isAncestorOf(now))) {
        seen_ = hosted.view;
      }
    }
  });
  restore_layout();
  show_recent_files();
  name_window();
  plan_changed();
  search_state();
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
  stop_ = button(tr("Stop"), tr("Stop the search; what was found stays (Esc)"));
  connect(stop_, &QToolButton::clicked, &desk_, &Desk::cancel_search);
  write_progress_ = bar(tr("File being written"));
  stop_writing_ = button(tr("Cancel"), tr("Do not write the file (Esc)"));
  connect(stop_writing_, &QToolButton::clicked, &writer_, &Writer::cancel);
  connect(&writer_, &Writer::progressed, this,
          [this](double share) { write_progress_->setValue(static_cast<int>(100 * share)); });
  connect(&writer_, &Writer::written, this, &Window::file_written);
  connect(&writer_, &Writer::finished, this, &Window::search_state);
  connect(&writer_, &Writer::finished, this, &Window::refresh_actions);
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

Window::Hosted& Window::host(const QString& name, QWidget* view, std::function<void()> show,
                             bool below) {
  Hosted hosted{name, view, std::move(show), nullptr, nullptr, nullptr, true};
  if (below) {
    QDockWidget* place = dock(name, view, Qt::BottomDockWidgetArea);
    view->setMinimumHeight(kLeastBelow);
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
  Hosted& hosted = host(name, view, show, false);
  hosted.mark = mark;
  hosted.veil = new Veil(*view);
  connect(view, &View::chosen, this,
          [this](const Candidate& candidate) { desk_.take(candidate.plan); });
  return view;
}

template <class View>
View* Window::host_plan(const QString& name) {
  auto* view = new View(this);
  host(
      name, view, [this, view] { view->show_plan(desk_.plan()); }, true)
      .veil = new Veil(*view);
  return view;
}

void Window::build_centre() {
  auto* centre = new QWidget(this);
  welcome_ = new Welcome(this);
  connect(welcome_, &Welcome::asked, this, [this](const Sheet& sheet) { desk_.load(sheet); });
  connect(welcome_, &Welcome::file_chosen, this, &Window::open_file);
  connect(welcome_, &Welcome::open_wanted, this, &Window::ask_open);
  centre_ = new QStackedWidget(this);
  centre_->addWidget(welcome_);
  centre_->addWidget(centre);
  auto* column = new QVBoxLayout(centre);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(4);
  card_ = new VerdictCard(centre);
  column->addWidget(card_);
  space_tabs_ = new QTabWidget(centre);
  space_tabs_->setDocumentMode(true);
  column->addWidget(space_tabs_, 1);
  setCentralWidget(centre_);
  host_space<SpaceView>(tr("Plans"));
  candidates_ = host_space<CandidatesView>(tr("Table"));
  host_space<RejectedView>(tr("Ruled out"));
  connect(space_tabs_, &QTabWidget::currentChanged, this,
          [this] { bring_up_to_date(false, false); });
}

void Window::build_docks() {
  question_ = new QuestionPanel(desk_, this);
  question_->setMinimumWidth(kLeastQuestion);
  QDockWidget* left = dock(tr("Question"), question_, Qt::LeftDockWidgetArea);
  controls_ = new PlanControls(desk_, this);
  controls_->setMinimumWidth(kLeastControls);
  QDockWidget* right = dock(tr("Configuration"), controls_, Qt::RightDockWidgetArea);
  connect(controls_, &PlanControls::why_not_asked, this, [this] { explain(); });

  host_plan<MemoryView>(tr("Memory"));
  host_plan<StepView>(tr("Step"));
  host_plan<TimelineView>(tr("Timeline"));
  host_plan<TopologyView>(tr("Topology"));
  auto* scaling = new ScalingView(this);
  host(
      tr("Scaling"), scaling, [this, scaling] { scaling->show_question(desk_.plan()); }, true)
      .veil = new Veil(*scaling);
  explanation_ = new AnswerView(
      tr("Explanation"), tr("Explain"),
      tr("Explain (Y) walks from one GPU to the best plan, one technique at a time, and says what "
         "is wrong with the configuration on the right."),
      this);
  host(
      tr("Explanation"), explanation_,
      [this] {
        const PlanShown shown = desk_.plan_is_stale() ? nullptr : desk_.plan();
        explanation_->prepare(desk_.asked() ? explaining(*desk_.asked(), shown) : nullptr);
      },
      true);
  sensitivity_ = new AnswerView(
      tr("Sensitivity"), tr("Search again under each change"),
      tr("What happens to the plan when memory, network, batch or number format change."), this);
  host(
      tr("Sensitivity"), sensitivity_,
      [this] {
        const bool known = desk_.plan() && !desk_.plan_is_stale();
        sensitivity_->prepare(known ? changing(desk_.plan()) : nullptr);
      },
      true);
  for (AnswerView* answer : {explanation_, sensitivity_}) {
    connect(answer, &AnswerView::started, this, &Window::search_state);
    connect(answer, &AnswerView::finished, this, &Window::search_state);
  }
  auto* compare = new CompareView(this);
  host(
      tr("Compare"), compare, [this, compare] { compare->show_pair(pinned_, desk_.plan()); }, true)
      .veil = new Veil(*compare);
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
      centre_->setCurrentIndex(1);
      space_tabs_->setCurrentWidget(hosted.view);
    }
    hosted.view->setFocus(Qt::OtherFocusReason);
  }
  bring_up_to_date(false, false);
}

void Window::focus_views() {
  QWidget* to = seen_ != nullptr && seen_->isVisible() ? seen_ : nullptr;
  if (to == nullptr) to = welcome_->isVisible() ? welcome_ : space_tabs_->currentWidget();
  to->setFocus(Qt::OtherFocusReason);
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

void Window::pin_plan() {
  pinned_ = desk_.plan();
  bring_up_to_date(true, false);
  say(tr("Pinned. Compare shows it next to the current plan."));
}

/// The text begins with what is wrong with the plan shown where that is not the best one.
void Window::explain() {
  raise_view(tr("Explanation"));
  explanation_->start();
}

}  // namespace echelon::gui
