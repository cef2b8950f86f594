// The window: what is asked on the left, one configuration on the right, the space between them and
// everything about the plan below.
#pragma once

#include <QAction>
#include <QDockWidget>
#include <QLabel>
#include <QMainWindow>
#include <QProgressBar>
#include <QStackedWidget>
#include <QTabWidget>
#include <QToolButton>
#include <functional>
#include <optional>
#include <vector>

#include "gui/answer_view.hpp"
#include "gui/desk.hpp"
#include "gui/plan_controls.hpp"
#include "gui/question_panel.hpp"
#include "gui/theme.hpp"
#include "gui/verdict_card.hpp"
#include "gui/writer.hpp"

namespace echelon::gui {

class CandidatesView;
class RunView;
class Veil;
class Welcome;

class Window : public QMainWindow {
  Q_OBJECT

 public:
  explicit Window(QWidget* parent = nullptr);
  ~Window() override;

  [[nodiscard]] Desk& desk() { return desk_; }
  [[nodiscard]] QuestionPanel& question() { return *question_; }
  [[nodiscard]] PlanControls& controls() { return *controls_; }
  [[nodiscard]] VerdictCard& card() { return *card_; }
  [[nodiscard]] AnswerView& explanation() { return *explanation_; }
  [[nodiscard]] AnswerView& sensitivity() { return *sensitivity_; }
  [[nodiscard]] RunView& run() { return *run_; }
  [[nodiscard]] Writer& writer() { return writer_; }

  /// A session, a plan file, a run report, a model or a cluster; the status bar says what is wrong
  /// with anything else. Opening is a step that can be undone.
  bool open_file(const QString& path);
  Status save_session(const QString& path);
  /// These two begin to write beside the window: writer() tells what came of it.
  Status export_plan(const QString& path);
  Status export_trace(const QString& path);
  Status export_table(const QString& path);
  Status export_view(const QString& path);
  /// Shows it, and sees to it that it lies on the screen with its frame.
  void show_on_screen();
  void set_theme(Theme theme);
  [[nodiscard]] Theme theme() const { return theme_; }
  void explain();
  /// The plan shown stays for comparison with others.
  void pin_plan();

  /// A view with the name its picture gets.
  struct Hosted {
    QString name;
    QWidget* view = nullptr;
    std::function<void()> show;   ///< brings it up to date
    std::function<void()> mark;   ///< for a new plan in the same space
    QDockWidget* dock = nullptr;  ///< null: a tab of the centre
    Veil* veil = nullptr;         ///< over a view of what is asked; null: it is not of that
    bool behind = true;           ///< of what the desk holds; brought up to date once it is seen
  };
  [[nodiscard]] std::vector<Hosted>& views() { return views_; }
  /// Makes a view the visible one of its place.
  void raise_view(const QString& name);
  /// The first view of the centre and the first below.
  void raise_first_views();
  [[nodiscard]] QAction* action(const QString& text) const;

 protected:
  void dragEnterEvent(QDragEnterEvent* event) override;
  void dropEvent(QDropEvent* event) override;
  void closeEvent(QCloseEvent* event) override;
  void childEvent(QChildEvent* event) override;

 private:
  // window.cpp
  void build_status();
  void build_centre();
  void build_docks();
  Hosted& host(const QString& name, QWidget* view, std::function<void()> show, bool below);
  template <class View>
  View* host_space(const QString& name);  ///< in the centre, with show_space() and mark()
  template <class View>
  View* host_plan(const QString& name);  ///< below, with show_plan()
  QDockWidget* dock(const QString& name, QWidget* inside, Qt::DockWidgetArea area);
  void bring_up_to_date(bool plan, bool space);
  void focus_views();
  // window_state.cpp
  void plan_changed();
  void space_changed();
  void dim_stale_views();
  void tell_counts();
  void search_state();
  void name_window();
  [[nodiscard]] QString doubt() const;
  [[nodiscard]] bool welcomes() const;
  void say(const QString& text, bool wrong = false);
  // window_actions.cpp
  void build_actions();
  QAction* add(QMenu* menu, const QString& text, const QKeySequence& keys,
               std::function<void()> what, const QString& help = {});
  void refresh_actions();
  void show_keys();
  void restore_layout();
  void reset_layout();
  void fit_screen();
  [[nodiscard]] bool may_close();
  [[nodiscard]] bool may_leave_session();
  // window_files.cpp
  void ask_open();
  void ask_save(bool anew);
  void ask_export(const QString& title, const QString& name, const QString& filter,
                  Status (Window::*write)(const QString&));
  Status begin_writing(const QString& path, const char* what,
                       Result<std::string> (*text)(const ShownPlan&, const Progress&));
  void file_written(const QString& path, const Status& status);
  bool begin_with(const QString& path, const Result<Sheet>& sheet, bool session);
  void remember_file(const QString& path);
  void show_recent_files();
  void keep_last_session();
  void copy(const std::string& text, const QString& what);

  Desk desk_;
  QuestionPanel* question_ = nullptr;
  PlanControls* controls_ = nullptr;
  VerdictCard* card_ = nullptr;
  QTabWidget* space_tabs_ = nullptr;
  AnswerView* explanation_ = nullptr;
  AnswerView* sensitivity_ = nullptr;
  CandidatesView* candidates_ = nullptr;
  RunView* run_ = nullptr;
  std::vector<Hosted> views_;
  std::vector<QAction*> actions_;
  QWidget* seen_ = nullptr;  ///< the view that had the focus last: what a picture is of
  PlanShown pinned_;
  bool why_not_ = false;  ///< the explanation is to answer for the plan shown, too
  Theme theme_ = Theme::system;
  Welcome* welcome_ = nullptr;
  QStackedWidget* centre_ = nullptr;  ///< the welcome, or card and space
  QLabel* message_ = nullptr;
  bool searching_told_ = false;  ///< message_ says that the figures are not the answer
  QProgressBar* progress_ = nullptr;
  QToolButton* stop_ = nullptr;
  QProgressBar* write_progress_ = nullptr;
  QToolButton* stop_writing_ = nullptr;
  QByteArray first_layout_;
  Writer writer_;
};

}  // namespace echelon::gui
