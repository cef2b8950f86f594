// One flag as an entry: its value, what it is when nothing is said, and why it is wrong.
#pragma once

#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QString>
#include <QStringList>
#include <QTimer>
#include <QWidget>
#include <functional>
#include <string>
#include <string_view>

namespace echelon::gui {

/// Help of a flag as its tooltip: "--seq N: tokens per sample ...".
[[nodiscard]] QString tooltip_of(const std::string& flag);

/// A line of text below an entry, in the colour of errors; takes no room while it is empty.
class Reason : public QLabel {
  Q_OBJECT

 public:
  explicit Reason(QWidget* parent = nullptr);
  void tell(const QString& text);

 protected:
  void changeEvent(QEvent* event) override;

 private:
  void paint_in_palette();
};

/// The list of an entry, which says when it was chosen from.
class ListEntry : public QComboBox {
  Q_OBJECT

 public:
  using QComboBox::QComboBox;
  void hidePopup() override;

 Q_SIGNALS:
  void chosen_from();  ///< its popup closed
};

/// Digits alone get into `entry`; every other letter does what it does outside of entries.
void take_digits_only(QLineEdit& entry);
/// `left` is called when Return or Escape ends the edit of `entry`, which may be that of `list`.
void when_left(QLineEdit& entry, ListEntry* list, const std::function<void()>& left);

/// A title, an entry (with a list where there is one to choose from) and room for a reason.
class FlagEntry : public QWidget {
  Q_OBJECT

 public:
  /// `browse`: a button that asks for a file.
  FlagEntry(std::string flag, const QString& title, const QStringList& choices, bool browse,
            QWidget* parent = nullptr);

  [[nodiscard]] const std::string& flag() const { return flag_; }
  [[nodiscard]] QString text() const { return entry_->text(); }
  [[nodiscard]] QLineEdit& entry() { return *entry_; }
  /// `otherwise` is shown where nothing is set. An entry that is being typed into keeps its text
  /// while it means the same.
  void show_value(const QString& text, const QString& otherwise);
  /// "" for none. The entry gets a border, the reason stands below it; not while it is typed into,
  /// until a moment has passed or the entry is left.
  void show_reason(const QString& reason);
  /// As shown.
  [[nodiscard]] QString reason() const { return reason_->text(); }

 Q_SIGNALS:
  void edited(const QString& text);
  void done();  ///< the edit at hand is over
  void left();  ///< … by Return, Escape or a choice: keys are for the views again

 protected:
  void paintEvent(QPaintEvent* event) override;

 private:
  void build_list(const QStringList& choices);
  void browse();
  void judge();

  std::string flag_;
  ListEntry* list_ = nullptr;  ///< null: a line of text alone
  QLineEdit* entry_ = nullptr;
  Reason* reason_ = nullptr;
  QString found_wrong_;  ///< what is or will be shown
  QTimer typing_;        ///< runs while it is too early to judge
};

/// Draws the border of a wrong entry around `entry`, a child of `widget`.
void mark_wrong(QWidget& widget, const QWidget& entry);

}  // namespace echelon::gui
