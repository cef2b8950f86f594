// Menus, keys, themes and the layout of the window.
#include <QApplication>
#include <QChildEvent>
#include <QCloseEvent>
#include <QDialog>
#include <QLabel>
#include <QMenuBar>
#include <QMessageBox>
#include <QPushButton>
#include <QScreen>
#include <QScrollArea>
#include <QSettings>
#include <QStyle>
#include <QTabBar>
#include <QTimer>
#include <QToolBar>
#include <QVBoxLayout>
#include <utility>

#include "gui/run_view.hpp"
#include "gui/stored_settings.hpp"
#include "gui/window.hpp"

namespace echelon::gui {

namespace {

constexpr int kLayoutVersion = 1;  // of the docks: another one does not restore an older layout
constexpr int kFrameComes = 200;   // ms

QString name_of_theme(Theme theme) {
  return theme == Theme::light  ? QStringLiteral("light")
         : theme == Theme::dark ? QStringLiteral("dark")
                                : QStringLiteral("system");
}

}  // namespace

QAction* Window::add(QMenu* menu, const QString& text, const QKeySequence& keys,
                     std::function<void()> what, const QString& help) {
  auto* action = new QAction(text, this);
  if (!keys.isEmpty()) action->setShortcut(keys);
  action->setToolTip(keys.isEmpty()
                         ? (help.isEmpty() ? text : help)
                         : QStringLiteral("%1 (%2)").arg(help.isEmpty() ? text : help,
                                                         keys.toString(QKeySequence::NativeText)));
  action->setStatusTip(help);
  connect(action, &QAction::triggered, this, std::move(what));
  menu->addAction(action);
  actions_.push_back(action);
  return action;
}

QAction* Window::action(const QString& text) const {
  for (QAction* each : actions_) {
    if (each->text() == text) return each;
  }
  return nullptr;
}

void Window::build_actions() {
  QMenu* file = menuBar()->addMenu(tr("&File"));
  QAction* open = add(
      file, tr("Open …"), QKeySequence::Open, [this] { ask_open(); },
      tr("Open a session, plan file, run report, model or cluster"));
  QAction* save = add(file, tr("Save session"), QKeySequence::Save, [this] { ask_save(false); });
  add(file, tr("Save session as …"), QKeySequence::SaveAs, [this] { ask_save(true); });
  file->addSeparator();
  add(
      file, tr("Export plan file …"), QKeySequence(tr("Ctrl+E")),
      [this] {
        ask_export(tr("Export plan file"), QStringLiteral("plan.json"), tr("Plan file (*.json)"),
                   &Window::export_plan);
      },
      tr("What plan run executes and plan predict reads"));
  add(
      file, tr("Export trace …"), QKeySequence(tr("Ctrl+Shift+T")),
      [this] {
        ask_export(tr("Export trace"), QStringLiteral("trace.json"), tr("Chrome trace (*.json)"),
                   &Window::export_trace);
      },
      tr("The simulated step, for Perfetto or Chrome"));
  add(
      file, tr("Export table …"), QKeySequence(tr("Ctrl+Shift+E")),
      [this] {
        ask_export(tr("Export table"), QStringLiteral("plans.csv"), tr("Comma-separated (*.csv)"),
                   &Window::export_table);
      },
      tr("All plans found, one a line"));
  add(
      file, tr("Export picture …"), QKeySequence(tr("Ctrl+Shift+G")),
      [this] {
        ask_export(tr("Export picture of the view"), QStringLiteral("view.png"),
                   tr("Pictures (*.png *.svg)"), &Window::export_view);
      },
      tr("The view that was clicked last, as PNG or SVG"));
  file->addSeparator();
  add(file, tr("Quit"), QKeySequence::Quit, [this] { close(); });

  QMenu* edit = menuBar()->addMenu(tr("&Edit"));
  QAction* undo = add(edit, tr("Undo"), QKeySequence::Undo, [this] { desk_.undo(); });
  QAction* redo = add(edit, tr("Redo"), QKeySequence(tr("Ctrl+Shift+Z")), [this] { desk_.redo(); });
  redo->setShortcuts({QKeySequence(tr("Ctrl+Shift+Z")), QKeySequence(tr("Ctrl+Y"))});
  edit->addSeparator();
  add(edit, tr("Copy command of the plan"), QKeySequence(tr("Ctrl+Shift+C")),
      [this] { copy(desk_.command_of_plan(), tr("the command that prices this plan")); });
  add(edit, tr("Copy command of the search"), QKeySequence(tr("Ctrl+Shift+X")),
      [this] { copy(desk_.command_of_search(), tr("the command that searches this question")); });

  QMenu* plan = menuBar()->addMenu(tr("&Plan"));
  QAction* best = add(
      plan, tr("Best plan"), QKeySequence(tr("B")), [this] { desk_.take_best(); },
      tr("Load the best plan and follow it"));
  best->setShortcuts({QKeySequence(tr("B")), QKeySequence(tr("Ctrl+B"))});  // from entries, too
  QAction* why = add(
      plan, tr("Explain"), QKeySequence(tr("Y")), [this] { explain(); },
      tr("Why the best plan is best"));
  add(
      plan, tr("Why not this one?"), QKeySequence(tr("N")), [this] { explain(); },
      tr("What is wrong with the configuration on the right"));
  add(plan, tr("Pin for comparison"), QKeySequence(tr("K")), [this] { pin_plan(); });
  add(plan, tr("Swap with the pinned plan"), QKeySequence(tr("X")), [this] {
    const PlanShown before = desk_.plan();
    if (!pinned_ || !before) return say(tr("Nothing is pinned: K pins the plan shown"), true);
    const PlanShown other = std::exchange(pinned_, before);
    desk_.take(other->candidate.plan);
  });
  plan->addSeparator();
  QAction* again = add(plan, tr("Search again"), QKeySequence(Qt::Key_F5), [this] {
    desk_.search_now();
    search_state();
  });
  add(
      plan, tr("Stop"), QKeySequence(Qt::Key_Escape),
      [this] {
        desk_.cancel_search();
        explanation_->cancel();
        sensitivity_->cancel();
        writer_.cancel();
        QWidget* typed = QApplication::focusWidget();
        if (question_->isAncestorOf(typed) || controls_->isAncestorOf(typed)) focus_views();
      },
      tr("Stop whatever is being worked out"));

  QMenu* view = menuBar()->addMenu(tr("&View"));
  int number = 0;
  for (const Hosted& hosted : views_) {
    ++number;
    const QKeySequence keys =
        number <= 9 ? QKeySequence(QStringLiteral("Alt+%1").arg(number))
        : number == 10
            ? QKeySequence(QStringLiteral("Alt+0"))
            : QKeySequence(QStringLiteral("Alt+%1").arg(QChar(u'a' + number - 11).toUpper()));
    add(view, hosted.name, keys, [this, name = hosted.name] { raise_view(name); });
  }
  view->addSeparator();
  for (QDockWidget* side : findChildren<QDockWidget*>()) {
    if (side->widget() == question_ || side->widget() == controls_) {
      QAction* toggle = side->toggleViewAction();
      toggle->setShortcut(side->widget() == question_ ? QKeySequence(Qt::Key_F2)
                                                      : QKeySequence(Qt::Key_F3));
      view->addAction(toggle);
      actions_.push_back(toggle);
    }
  }
  QAction* colours =
      add(view, tr("Light, dark or system colours"), QKeySequence(tr("Ctrl+T")), [this] {
        set_theme(theme_ == Theme::system  ? Theme::light
                  : theme_ == Theme::light ? Theme::dark
                                           : Theme::system);
        say(tr("Colours: %1").arg(name_of_theme(theme_)));
      });
  add(view, tr("Reset layout"), {}, [this] { reset_layout(); });
  QMenu* help = menuBar()->addMenu(tr("&Help"));
  add(help, tr("Keyboard shortcuts"), QKeySequence(tr("F1")), [this] {
    show_keys();
  })->setShortcuts({QKeySequence(tr("F1")), QKeySequence(tr("?"))});

  QToolBar* bar = addToolBar(tr("Tools"));
  bar->setObjectName(QStringLiteral("tools"));
  bar->setToolButtonStyle(Qt::ToolButtonTextOnly);
  bar->setMovable(false);
  for (QAction* each : {open, save}) bar->addAction(each);
  bar->addSeparator();
  for (QAction* each : {undo, redo}) bar->addAction(each);
  bar->addSeparator();
  for (QAction* each :
       {best, why, action(tr("Why not this one?")), action(tr("Pin for comparison")), again}) {
    bar->addAction(each);
  }
  bar->addSeparator();
  bar->addAction(action(tr("Copy command of the plan")));
  bar->addAction(colours);
  colours->setIconText(tr("Theme"));
  action(tr("Copy command of the plan"))->setIconText(tr("Copy command"));
  refresh_actions();
}

void Window::refresh_actions() {
  const auto enable = [this](const QString& text, bool on) {
    if (QAction* found = action(text)) found->setEnabled(on);
  };
  const bool plan = desk_.plan() != nullptr && !desk_.plan_is_stale();
  enable(tr("Undo"), desk_.can_undo());
  enable(tr("Redo"), desk_.can_redo());
  enable(tr("Best plan"), desk_.best() != nullptr);
  enable(tr("Explain"), desk_.asked().has_value());
  enable(tr("Why not this one?"), plan);
  enable(tr("Search again"), desk_.asked().has_value());
  for (const char* each :
       {"Export plan file …", "Export trace …", "Copy command of the plan", "Pin for comparison"}) {
    enable(tr(each), plan);
  }
  for (const char* each : {"Export plan file …", "Export trace …"}) {
    enable(tr(each), plan && !writer_.busy());
  }
  enable(tr("Export table …"), desk_.space() != nullptr && !desk_.space_is_stale());
}

namespace {

QString key_row(const QString& keys, const QString& what) {
  return QStringLiteral("<tr><td><b>%1</b>&nbsp;&nbsp;</td><td>%2&nbsp;&nbsp;&nbsp;</td></tr>")
      .arg(keys.toHtmlEscaped(), what.toHtmlEscaped());
}

/// The actions of a menu that have keys.
QString keys_of_menu(const QMenu& menu) {
  QString rows;
  for (const QAction* each : menu.actions()) {
    QStringList keys;
    for (const QKeySequence& sequence : each->shortcuts()) {
      keys << sequence.toString(QKeySequence::NativeText);
    }
    if (!keys.isEmpty()) rows += key_row(keys.join(Window::tr(" or ")), each->text());
  }
  return QStringLiteral("<tr><td colspan=2><b><u>%1</u></b></td></tr>%2")
      .arg(menu.title().remove(QLatin1Char('&')), rows);
}

}  // namespace

/// In three columns, so that all are seen at once.
void Window::show_keys() {
  const QString entries =
      QStringLiteral("<tr><td colspan=2><b><u>%1</u></b></td></tr>").arg(tr("Entries and views")) +
      key_row(tr("Return, Esc"), tr("leave an entry: keys are for the views again")) +
      key_row(tr("Tab, Shift+Tab"), tr("to the next or previous entry")) +
      key_row(tr("Left, Right"), tr("on a slider: the next value")) +
      key_row(tr("Space"), tr("on a lock: keep this value in every search")) +
      key_row(tr("F"), tr("in Plans and Timeline: fit"));
  QStringList columns(3);
  const QList<QAction*> menus = menuBar()->actions();
  for (int i = 0; i < menus.size(); ++i) {
    columns[i < 2 ? 0 : i == 3 ? 1 : 2] += keys_of_menu(*menus[i]->menu());
  }
  columns[2] += entries;
  QString cells;
  for (const QString& column : columns) {
    cells += QStringLiteral("<td><table cellpadding=1>%1</table></td>").arg(column);
  }
  QDialog keys(this);
  keys.setObjectName(QStringLiteral("keys"));
  keys.setWindowTitle(tr("Keyboard shortcuts"));
  auto* column = new QVBoxLayout(&keys);
  auto* area = new QScrollArea(&keys);
  area->setFrameShape(QFrame::NoFrame);
  auto* list = new QLabel(QStringLiteral("<table><tr>%1</tr></table>").arg(cells), area);
  list->setContentsMargins(8, 8, 8, 8);
  area->setWidget(list);
  column->addWidget(area);
  const QSize whole = list->sizeHint() + QSize(40, 40);
  keys.resize(whole.boundedTo(screen()->availableGeometry().size() - QSize(40, 60)));
  keys.exec();
}

void Window::set_theme(Theme theme) {
  theme_ = theme;
  message_->setPalette({});  // what it says is not told again
  apply_theme(*static_cast<QApplication*>(QApplication::instance()), theme);
}

void Window::restore_layout() {
  fit_screen();
  first_layout_ = saveState(kLayoutVersion);
  QSettings stored = stored_settings();
  restoreGeometry(stored.value(QStringLiteral("geometry")).toByteArray());
  restoreState(stored.value(QStringLiteral("layout")).toByteArray(), kLayoutVersion);
  const QString colours = stored.value(QStringLiteral("colours")).toString();
  set_theme(colours == QLatin1String("light")  ? Theme::light
            : colours == QLatin1String("dark") ? Theme::dark
                                               : Theme::system);
}

void Window::reset_layout() {
  fit_screen();
  restoreState(first_layout_, kLayoutVersion);
}

/// As large as is good to look at, and no larger than the screen with the frame around it.
void Window::fit_screen() {
  constexpr QSize kGood(1440, 900);
  const QSize frame = isVisible() ? frameGeometry().size() - size()
                                  : QSize(0, style()->pixelMetric(QStyle::PM_TitleBarHeight));
  const QRect room = screen()->availableGeometry();
  resize(kGood.boundedTo(room.size() - frame));
  if (!room.contains(frameGeometry())) move(room.topLeft());
}

void Window::show_on_screen() {
  show();
  // The frame is known a moment later, once the window manager has put it around.
  QTimer::singleShot(kFrameComes, this, [this] {
    if (isMaximized() || isFullScreen()) return;
    const QRect room = screen()->availableGeometry();
    const QSize most = room.size() - (frameGeometry().size() - size());
    if (width() > most.width() || height() > most.height()) resize(size().boundedTo(most));
    if (!room.contains(frameGeometry())) move(room.topLeft());
  });
}

/// The tabs below are made by Qt when there are some: they scroll rather than lose their names.
void Window::childEvent(QChildEvent* event) {
  QMainWindow::childEvent(event);
  if (event->type() != QEvent::ChildPolished) return;
  if (auto* tabs = qobject_cast<QTabBar*>(event->child())) {
    tabs->setElideMode(Qt::ElideNone);
    tabs->setUsesScrollButtons(true);
  }
}

/// Nothing that cannot be had again is lost without a question.
bool Window::may_close() {
  const auto sure = [this](const QString& text, const QString& loss) {
    QMessageBox box(QMessageBox::Question, tr("Quit?"), text, QMessageBox::Cancel, this);
    QPushButton* go = box.addButton(loss, QMessageBox::DestructiveRole);
    box.setDefaultButton(QMessageBox::Cancel);
    box.exec();
    return box.clickedButton() == go;
  };
  if (run_->running() &&
      !sure(tr("A run is going on: %1").arg(run_->status()), tr("Stop it and quit"))) {
    return false;
  }
  if (writer_.busy() &&
      !sure(tr("%1 is being written.").arg(writer_.path()), tr("Quit without it"))) {
    return false;
  }
  return run_->may_drop_report() && may_leave_session();
}

/// Of a session that lies in a file; what never did is kept for the next window.
bool Window::may_leave_session() {
  if (!desk_.document().session || !desk_.modified()) return true;
  const auto answer = QMessageBox::question(
      this, tr("Save?"), tr("%1 was changed since it was saved.").arg(windowFilePath()),
      QMessageBox::Save | QMessageBox::Discard | QMessageBox::Cancel, QMessageBox::Save);
  if (answer == QMessageBox::Save) {
    ask_save(false);
    return !desk_.modified();
  }
  return answer == QMessageBox::Discard;
}

void Window::closeEvent(QCloseEvent* event) {
  if (!may_close()) return event->ignore();
  keep_last_session();
  QSettings stored = stored_settings();
  stored.setValue(QStringLiteral("geometry"), saveGeometry());
  stored.setValue(QStringLiteral("layout"), saveState(kLayoutVersion));
  stored.setValue(QStringLiteral("colours"), name_of_theme(theme_));
  QMainWindow::closeEvent(event);
}

}  // namespace echelon::gui
