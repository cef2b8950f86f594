// Controls of the configuration: a slider, list or entry with a lock for each flag of a plan.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QScrollArea>
#include <QSlider>
#include <QToolButton>
#include <map>
#include <vector>

#include "gui/query/flag_entry.hpp"
#include "gui/session/planning_session.hpp"

namespace echelon::gui {

/// A slider over the possible values of a degree. Ticks mark the legal values; the others can be
/// selected, too.
class TickSlider : public QSlider {
  Q_OBJECT

 public:
  explicit TickSlider(QWidget* parent = nullptr);
  /// Moves the handle to the tick nearest to `value`.
  void show_ticks(std::vector<cli::SliderTick> stops, int value);
  [[nodiscard]] const std::vector<cli::SliderTick>& stops() const { return stops_; }

 Q_SIGNALS:
  void moved_to(int value);  ///< by the user

 protected:
  void paintEvent(QPaintEvent* event) override;

 private:
  std::vector<cli::SliderTick> stops_;
  bool showing_ = false;
};

/// The controls of one flag.
class PlanControl : public QWidget {
  Q_OBJECT

 public:
  enum class Kind { degree, choice, text };
  PlanControl(std::string flag, const QString& title, Kind kind, QWidget* parent = nullptr);

  [[nodiscard]] const std::string& flag() const { return flag_; }
  void show_value(const QString& text);
  void show_ticks(const std::vector<cli::SliderTick>& stops);
  void show_locked(bool locked);
  void show_reason(const QString& reason);
  [[nodiscard]] QString reason() const { return reason_->text(); }
  [[nodiscard]] TickSlider* slider() { return slider_; }
  [[nodiscard]] QLineEdit& entry() { return *entry_; }
  [[nodiscard]] QToolButton& lock() { return *lock_; }

 Q_SIGNALS:
  void edited(const QString& text);
  void done();
  void left();  ///< the entry, by Return or Escape
  void locked(bool on);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  void draw_lock();

  std::string flag_;
  QToolButton* lock_ = nullptr;
  TickSlider* slider_ = nullptr;  ///< null unless a degree
  ListEntry* list_ = nullptr;     ///< null unless a choice
  QLineEdit* entry_ = nullptr;
  ErrorLabel* reason_ = nullptr;
};

class PlanControls : public QWidget {
  Q_OBJECT

 public:
  explicit PlanControls(PlanningSession& session, QWidget* parent = nullptr);
  [[nodiscard]] PlanControl* control(const std::string& flag) const;
  [[nodiscard]] QString summary() const { return fits_->text(); }

 Q_SIGNALS:
  void why_not_requested();
  void left();  ///< an entry, by Return or Escape

 protected:
  void changeEvent(QEvent* event) override;

 private:
  void refresh();
  void refresh_summary();

  PlanningSession& session_;
  std::map<std::string, PlanControl*> controls_;
  QLabel* fits_ = nullptr;
  QLabel* against_ = nullptr;
  QToolButton* best_ = nullptr;
  QToolButton* why_ = nullptr;
};

}  // namespace echelon::gui
