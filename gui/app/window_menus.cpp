// Menus, keyboard shortcuts and the toolbar.
#include <QApplication>
#include <QDialog>
#include <QLabel>
#include <QMenuBar>
#include <QScreen>
#include <QScrollArea>
#include <QToolBar>
#include <QVBoxLayout>
#include <utility>

#include "gui/app/window.hpp"
#include "gui/views/scaling_view.hpp"

namespace echelon::gui {

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

void Window::build_menus() {
  build_file_menu();
  build_edit_menu();
  build_plan_menu();
  build_view_menu();
  QMenu* help = menuBar()->addMenu(tr("&Help"));
  add(help, tr("Keyboard shortcuts"), QKeySequence(tr("F1")), [this] {
    show_keys();
  })->setShortcuts({QKeySequence(tr("F1")), QKeySequence(tr("?"))});
  build_toolbar();
  refresh_actions();
}

void Window::build_file_menu() {
  QMenu* file = menuBar()->addMenu(tr("&File"));
  add(
      file, tr("Open …"), QKeySequence::Open, [this] { choose_and_open(); },
      tr("Open a session, plan file, run report, model or cluster"));
  add(file, tr("Save session"), QKeySequence::Save, [this] { choose_and_save(false); });
  add(file, tr("Save session as …"), QKeySequence::SaveAs, [this] { choose_and_save(true); });
  file->addSeparator();
  add(
      file, tr("Export plan file …"), QKeySequence(tr("Ctrl+E")),
      [this] {
        if (!show_error(plan_is_current("plan file"))) return;
        choose_and_export(tr("Export plan file"), QStringLiteral("plan.json"),
                          tr("Plan file (*.json)"), &Window::export_plan);
      },
      tr("The file that plan run executes and plan predict reads"));
  add(
      file, tr("Export trace …"), QKeySequence(tr("Ctrl+Shift+T")),
      [this] {
        if (!show_error(plan_is_current("trace"))) return;
        choose_and_export(tr("Export trace"), QStringLiteral("trace.json"),
                          tr("Chrome trace (*.json)"), &Window::export_trace);
      },
      tr("The simulated step as a Chrome trace, for Perfetto"));
  add(
      file, tr("Export table …"), QKeySequence(tr("Ctrl+Shift+E")),
      [this] {
        if (!show_error(space_is_current("table"))) return;
        choose_and_export(tr("Export table"), QStringLiteral("plans.csv"),
                          tr("Comma-separated (*.csv)"), &Window::export_table);
      },
      tr("All plans of the search, one per line"));
  add(
      file, tr("Export image …"), QKeySequence(tr("Ctrl+Shift+G")),
      [this] {
        choose_and_export(tr("Export an image of the view"), QStringLiteral("view.png"),
                          tr("Images (*.png *.svg)"), &Window::export_view);
      },
      tr("The view clicked last, as PNG or SVG"));
  file->addSeparator();
  add(file, tr("Quit"), QKeySequence::Quit, [this] { close(); });
}

void Window::build_edit_menu() {
  QMenu* edit = menuBar()->addMenu(tr("&Edit"));
  add(edit, tr("Undo"), QKeySequence::Undo, [this] { session_.undo(); });
  add(edit, tr("Redo"), QKeySequence(tr("Ctrl+Shift+Z")), [this] {
    session_.redo();
  })->setShortcuts({QKeySequence(tr("Ctrl+Shift+Z")), QKeySequence(tr("Ctrl+Y"))});
  edit->addSeparator();
  add(edit, tr("Copy plan command"), QKeySequence(tr("Ctrl+Shift+C")), [this] {
    copy(session_.command_of_plan(), tr("the command that prices this plan"));
  })->setIconText(tr("Copy command"));
  add(edit, tr("Copy search command"), QKeySequence(tr("Ctrl+Shift+X")),
      [this] { copy(session_.command_of_search(), tr("the command of this search")); });
}

void Window::build_plan_menu() {
  QMenu* plan = menuBar()->addMenu(tr("&Plan"));
  add(
      plan, tr("Best plan"), QKeySequence(tr("B")), [this] { session_.follow_best(); },
      tr("Load the best plan and follow it"))
      ->setShortcuts({QKeySequence(tr("B")), QKeySequence(tr("Ctrl+B"))});  // works in entries, too
  add(
      plan, tr("Explain"), QKeySequence(tr("Y")), [this] { explain(); },
      tr("Why the best plan is the best"));
  add(
      plan, tr("Why not this plan?"), QKeySequence(tr("N")), [this] { explain(); },
      tr("Problems of the configuration on the right"));
  add(plan, tr("Pin for comparison"), QKeySequence(tr("K")), [this] { pin_plan(); });
  add(plan, tr("Swap with pinned plan"), QKeySequence(tr("X")), [this] { swap_with_pinned(); });
  plan->addSeparator();
  add(plan, tr("Search again"), QKeySequence(Qt::Key_F5), [this] {
    session_.search_now();
    update_progress();
  });
  add(
      plan, tr("Stop"), QKeySequence(Qt::Key_Escape), [this] { stop_all(); },
      tr("Stop searches, explanations and files being written"));
}

void Window::swap_with_pinned() {
  const PlanResultPtr before = session_.plan();
  if (!pinned_ || !before) {
    return show_status(tr("No plan is pinned: press K to pin the current one"), true);
  }
  const PlanResultPtr other = pinned_;
  pin(before);
  session_.load_plan(other->candidate.plan);
}

void Window::stop_all() {
  session_.cancel_search();
  explanation_->cancel();
  sensitivity_->cancel();
  scaling_->cancel();
  writer_.cancel();
  update_progress();
  QWidget* focused = QApplication::focusWidget();
  if (job_panel_->isAncestorOf(focused) || controls_->isAncestorOf(focused)) focus_views();
}

void Window::build_view_menu() {
  QMenu* view = menuBar()->addMenu(tr("&View"));
  int number = 0;
  for (const ViewEntry& entry : views_) {
    ++number;
    const QKeySequence keys =
        number <= 9 ? QKeySequence(QStringLiteral("Alt+%1").arg(number))
        : number == 10
            ? QKeySequence(QStringLiteral("Alt+0"))
            : QKeySequence(QStringLiteral("Alt+%1").arg(QChar(u'a' + number - 11).toUpper()));
    add(view, entry.name, keys, [this, name = entry.name] { raise_view(name); });
  }
  view->addSeparator();
  for (QDockWidget* side : findChildren<QDockWidget*>()) {
    if (side->widget() == job_panel_ || side->widget() == controls_) {
      QAction* toggle = side->toggleViewAction();
      toggle->setShortcut(side->widget() == job_panel_ ? QKeySequence(Qt::Key_F2)
                                                       : QKeySequence(Qt::Key_F3));
      view->addAction(toggle);
      actions_.push_back(toggle);
    }
  }
  add(
      view, tr("Switch theme"), QKeySequence(tr("Ctrl+T")),
      [this] {
        set_theme(theme_ == Theme::system  ? Theme::light
                  : theme_ == Theme::light ? Theme::dark
                                           : Theme::system);
        show_status(tr("Theme: %1").arg(theme_name(theme_)));
      },
      tr("Light, dark or the theme of the system"))
      ->setIconText(tr("Theme"));
  add(view, tr("Reset layout"), {}, [this] { reset_layout(); });
}

void Window::build_toolbar() {
  QToolBar* bar = addToolBar(tr("Tools"));
  bar->setObjectName(QStringLiteral("tools"));
  bar->setToolButtonStyle(Qt::ToolButtonTextOnly);
  bar->setMovable(false);
  const auto add_group = [&](std::initializer_list<QString> names) {
    if (!bar->actions().isEmpty()) bar->addSeparator();
    for (const QString& name : names) bar->addAction(action(name));
  };
  add_group({tr("Open …"), tr("Save session")});
  add_group({tr("Undo"), tr("Redo")});
  add_group({tr("Best plan"), tr("Explain"), tr("Why not this plan?"), tr("Pin for comparison"),
             tr("Search again")});
  add_group({tr("Copy plan command"), tr("Switch theme")});
}

void Window::refresh_actions() {
  const auto enable = [this](const QString& text, bool on) {
    if (QAction* found = action(text)) found->setEnabled(on);
  };
  const bool plan = session_.plan() != nullptr && !session_.plan_is_stale();
  enable(tr("Undo"), session_.can_undo());
  enable(tr("Redo"), session_.can_redo());
  enable(tr("Best plan"), session_.best() != nullptr);
  enable(tr("Explain"), session_.resolved().has_value());
  enable(tr("Search again"), session_.resolved().has_value());
  for (const QString& each :
       {tr("Why not this plan?"), tr("Copy plan command"), tr("Pin for comparison")}) {
    enable(each, plan);
  }
  // Without a current plan these stay enabled and show the reason.
  for (const QString& each : {tr("Export plan file …"), tr("Export trace …")}) {
    enable(each, !writer_.busy());
  }
}

namespace {

QString key_row(const QString& keys, const QString& what) {
  return QStringLiteral("<tr><td><b>%1</b>&nbsp;&nbsp;</td><td>%2&nbsp;&nbsp;&nbsp;</td></tr>")
      .arg(keys.toHtmlEscaped(), what.toHtmlEscaped());
}

/// The actions of a menu that have shortcuts.
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

/// In three columns, so that all shortcuts are visible at once.
void Window::show_keys() {
  const QString entries =
      QStringLiteral("<tr><td colspan=2><b><u>%1</u></b></td></tr>").arg(tr("Entries and views")) +
      key_row(tr("Return, Esc"), tr("leave an entry (letters are shortcuts again)")) +
      key_row(tr("Tab, Shift+Tab"), tr("next or previous entry")) +
      key_row(tr("Left, Right"), tr("on a slider: next or previous value")) +
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

}  // namespace echelon::gui
