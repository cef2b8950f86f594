// One configuration under the hand: a slider or a list for each flag of a plan, a lock on each.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QScrollArea>
#include <QSlider>
#include <QToolButton>
#include <map>
#include <vector>

#include "gui/desk.hpp"
#include "gui/flag_entry.hpp"

namespace echelon::gui {

/// A slider over the values a degree may have. Those with which the plan is legal are ticked; the
/// others can be chosen all the same.
class StopSlider : public QSlider {
  Q_OBJECT

 public:
  explicit StopSlider(QWidget* parent = nullptr);
  /// The handle goes to the stop nearest to `value`.
  void show_stops(std::vector<cli::Stop> stops, int value);
  [[nodiscard]] const std::vector<cli::Stop>& stops() const { return stops_; }

 Q_SIGNALS:
  void moved_to(int value);  ///< by the user

 protected:
  void paintEvent(QPaintEvent* event) override;

 private:
  std::vector<cli::Stop> stops_;
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
  void show_stops(const std::vector<cli::Stop>& stops);
  void show_locked(bool locked);
  void show_reason(const QString& reason);
  [[nodiscard]] QString reason() const { return reason_->text(); }
  [[nodiscard]] StopSlider* slider() { return slider_; }
  [[nodiscard]] QLineEdit& entry() { return *entry_; }
  [[nodiscard]] QToolButton& lock() { return *lock_; }

 Q_SIGNALS:
  void edited(const QString& text);
  void done();
  void left();  ///< its entry, by a key that leaves it
  void locked(bool on);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  void draw_lock();

  std::string flag_;
  QToolButton* lock_ = nullptr;
  StopSlider* slider_ = nullptr;  ///< null unless a degree
  ListEntry* list_ = nullptr;     ///< null unless a choice
  QLineEdit* entry_ = nullptr;
  Reason* reason_ = nullptr;
};

class PlanControls : public QWidget {
  Q_OBJECT

 public:
  explicit PlanControls(Desk& desk, QWidget* parent = nullptr);
  [[nodiscard]] PlanControl* control(const std::string& flag) const;
  [[nodiscard]] QString verdict() const { return fits_->text(); }

 Q_SIGNALS:
  void why_not_asked();
  void left();  ///< an entry, by a key that leaves it

 protected:
  void changeEvent(QEvent* event) override;

 private:
  void refresh();
  void refresh_verdict();

  Desk& desk_;
  std::map<std::string, PlanControl*> controls_;
  QLabel* fits_ = nullptr;
  QLabel* against_ = nullptr;
  QToolButton* best_ = nullptr;
  QToolButton* why_ = nullptr;
};

}  // namespace echelon::gui
