// The main window: the job on the left, one configuration on the right, the plans of the search in
// the centre and the views of the current plan below.
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

#include "gui/app/file_writer.hpp"
#include "gui/canvas/theme.hpp"
#include "gui/query/job_panel.hpp"
#include "gui/query/plan_controls.hpp"
#include "gui/session/planning_session.hpp"
#include "gui/views/answer_view.hpp"
#include "gui/views/summary_card.hpp"

namespace echelon::gui {

class CandidatesView;
class RunView;
class ScalingView;
class StaleOverlay;
class Welcome;

class Window : public QMainWindow {
  Q_OBJECT

 public:
  explicit Window(QWidget* parent = nullptr);
  ~Window() override;

  [[nodiscard]] PlanningSession& session() { return session_; }
  [[nodiscard]] JobPanel& job_panel() { return *job_panel_; }
  [[nodiscard]] PlanControls& controls() { return *controls_; }
  [[nodiscard]] SummaryCard& card() { return *card_; }
  [[nodiscard]] AnswerView& explanation() { return *explanation_; }
  [[nodiscard]] AnswerView& sensitivity() { return *sensitivity_; }
  [[nodiscard]] RunView& run() { return *run_; }
  [[nodiscard]] FileWriter& writer() { return writer_; }

  /// Opens a session, plan file, run report, model or cluster; the status bar shows the error for
  /// any other file. Opening is one undo step.
  bool open_file(const QString& path);
  Status save_session(const QString& path);
  /// These two start writing in the background; writer() reports the result.
  Status export_plan(const QString& path);
  Status export_trace(const QString& path);
  Status export_table(const QString& path);
  Status export_view(const QString& path);
  /// Shows the window and keeps it, including its frame, on the screen.
  void show_on_screen();
  void set_theme(Theme theme);
  [[nodiscard]] Theme theme() const { return theme_; }
  void explain();
  /// Keeps the current plan for comparison with others.
  void pin_plan();
  /// The pinned plan of a session; without one what is pinned stays. The status bar shows why a
  /// plan cannot be priced any more.
  void restore_pinned(const std::optional<Query>& pinned);
  /// Null: none is pinned.
  [[nodiscard]] PlanResultPtr pinned() const { return pinned_; }

  /// A view and its name, which is also that of its screenshot.
  struct ViewEntry {
    QString name;
    QWidget* view = nullptr;
    std::function<void()> show;       ///< refreshes it
    std::function<void()> mark;       ///< marks the current plan in an unchanged space
    QDockWidget* dock = nullptr;      ///< null for a tab of the centre
    StaleOverlay* overlay = nullptr;  ///< null for views that do not show the query
    bool stale = true;                ///< refreshed once it is visible
  };
  [[nodiscard]] std::vector<ViewEntry>& views() { return views_; }
  /// Brings a view to the front of its tabs.
  void raise_view(const QString& name);
  /// Brings the first tab of the centre and the first one below to the front.
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
  ViewEntry& add_view(const QString& name, QWidget* view, std::function<void()> show, bool below);
  template <class View>
  View* add_space_view(const QString& name);  ///< in the centre; it has show_space()
  template <class View>
  View* add_plan_view(const QString& name);  ///< below; it has show_plan()
  QDockWidget* dock(const QString& name, QWidget* inside, Qt::DockWidgetArea area);
  void refresh_views(bool plan, bool space);
  void focus_views();
  // window_state.cpp
  void plan_changed();
  void space_changed();
  void dim_stale_views();
  void show_counts();
  void update_progress();
  void update_title();
  [[nodiscard]] QString stale_reason() const;
  [[nodiscard]] bool shows_welcome() const;
  [[nodiscard]] Status plan_is_current(const char* what) const;
  [[nodiscard]] Status space_is_current(const char* what) const;
  void show_status(const QString& text, bool wrong = false);
  /// Shows an error in the status bar; true if there is none.
  bool show_error(const Status& status);
  // window_menus.cpp
  void build_menus();
  void build_file_menu();
  void build_edit_menu();
  void build_plan_menu();
  void build_view_menu();
  void build_toolbar();
  void pin(const PlanResultPtr& plan);
  void swap_with_pinned();
  void stop_all();
  QAction* add(QMenu* menu, const QString& text, const QKeySequence& keys,
               std::function<void()> what, const QString& help = {});
  void refresh_actions();
  void show_keys();
  // window_layout.cpp
  void restore_layout();
  void reset_layout();
  void fit_screen();
  [[nodiscard]] bool confirm_close();
  [[nodiscard]] bool confirm_leave_session();
  // window_files.cpp
  void choose_and_open();
  void choose_and_save(bool new_file);
  void choose_and_export(const QString& title, const QString& name, const QString& filter,
                         Status (Window::*write)(const QString&));
  Status begin_writing(const QString& path, const char* what,
                       Result<std::string> (*text)(const PlanResult&, const Progress&));
  void file_written(const QString& path, const Status& status);
  bool begin_with(const QString& path, const Result<Query>& query, bool is_session);
  void remember_file(const QString& path);
  void show_recent_files();
  void save_last_session();
  void copy(const std::string& text, const QString& what);

  PlanningSession session_;
  JobPanel* job_panel_ = nullptr;
  PlanControls* controls_ = nullptr;
  SummaryCard* card_ = nullptr;
  QTabWidget* space_tabs_ = nullptr;
  AnswerView* explanation_ = nullptr;
  AnswerView* sensitivity_ = nullptr;
  ScalingView* scaling_ = nullptr;
  CandidatesView* candidates_ = nullptr;
  RunView* run_ = nullptr;
  std::vector<ViewEntry> views_;
  std::vector<QAction*> actions_;
  QWidget* focused_view_ = nullptr;  ///< the view that had the focus last; image export draws it
  PlanResultPtr pinned_;
  std::optional<Query> pinned_query_;  ///< what pinned_ was priced for
  Theme theme_ = Theme::system;
  Welcome* welcome_ = nullptr;
  QStackedWidget* centre_ = nullptr;  ///< the welcome page, or summary and space
  QLabel* message_ = nullptr;
  bool status_is_search_ = false;  ///< message_ reports a running search
  QProgressBar* progress_ = nullptr;
  QToolButton* stop_ = nullptr;
  QProgressBar* write_progress_ = nullptr;
  QToolButton* stop_writing_ = nullptr;
  QByteArray first_layout_;
  FileWriter writer_;
};

}  // namespace echelon::gui
