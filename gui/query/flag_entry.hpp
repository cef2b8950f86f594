// Entry of one flag: value, default as placeholder, and error.
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

/// The help of a flag as tooltip: "--seq N: tokens per sample ...".
[[nodiscard]] QString tooltip_of(const std::string& flag);

/// The error below an entry; hidden while empty.
class ErrorLabel : public QLabel {
  Q_OBJECT

 public:
  explicit ErrorLabel(QWidget* parent = nullptr);
  void show_error(const QString& text);

 protected:
  void changeEvent(QEvent* event) override;

 private:
  void paint_in_palette();
};

/// A combo box that signals the end of a choice.
class ListEntry : public QComboBox {
  Q_OBJECT

 public:
  using QComboBox::QComboBox;
  void hidePopup() override;

 Q_SIGNALS:
  void popup_closed();  ///< its popup closed
};

/// Restricts `entry` to digits; letters remain shortcuts of the window.
void accept_digits_only(QLineEdit& entry);
/// Calls `left` when Return or Escape ends the edit of `entry`, which may belong to `list`.
void on_leave(QLineEdit& entry, ListEntry* list, const std::function<void()>& left);

/// A title, an entry (a combo box if there are choices) and an error below.
class FlagEntry : public QWidget {
  Q_OBJECT

 public:
  /// `browse`: adds a button that opens a file dialog.
  FlagEntry(std::string flag, const QString& title, const QStringList& choices, bool browse,
            QWidget* parent = nullptr);

  [[nodiscard]] const std::string& flag() const { return flag_; }
  [[nodiscard]] QString text() const { return entry_->text(); }
  [[nodiscard]] QLineEdit& entry() { return *entry_; }
  /// `placeholder` is shown while the entry is empty. The text is replaced only if it differs.
  void show_value(const QString& text, const QString& placeholder);
  /// "" for none. Shows the error below the entry and a border around it, but not while the user is
  /// typing: only after a pause or when the entry is left.
  void show_reason(const QString& reason);
  /// The error shown.
  [[nodiscard]] QString reason() const { return reason_->text(); }

 Q_SIGNALS:
  void edited(const QString& text);
  void done();  ///< the current edit ended
  void left();  ///< … by Return, Escape or a choice: the focus returns to the views

 protected:
  void paintEvent(QPaintEvent* event) override;

 private:
  void build_list(const QStringList& choices);
  void browse();
  void show_pending_error();

  std::string flag_;
  ListEntry* list_ = nullptr;  ///< null without choices
  QLineEdit* entry_ = nullptr;
  ErrorLabel* reason_ = nullptr;
  QString pending_error_;  ///< current or pending error
  QTimer typing_;          ///< runs while the user is typing
};

/// Draws the border of an invalid entry around `entry`, a child of `widget`.
void draw_error_border(QWidget& widget, const QWidget& entry);

}  // namespace echelon::gui
