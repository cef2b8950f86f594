// Form with the settings of a run: each field is a flag of `plan run`, empty for its default.
#pragma once

#include <QCheckBox>
#include <QComboBox>
#include <QLineEdit>
#include <QMap>
#include <QPlainTextEdit>
#include <QWidget>

namespace echelon::gui {

class RunForm : public QWidget {
  Q_OBJECT

 public:
  explicit RunForm(QWidget* parent = nullptr);

  [[nodiscard]] QString plan() const { return plan_->text().trimmed(); }
  void set_plan(const QString& path) { plan_->setText(path); }
  /// "--steps", "5", "--resume" …
  [[nodiscard]] QStringList flags() const;
  /// Flags without a field go to the last one.
  void set_flags(const QStringList& flags);
  /// The shell command.
  [[nodiscard]] QString command() const;

  /// Marks the field of the flag that an error message names; true if there is one.
  bool mark_error(const QString& message);
  void clear_marks();
  [[nodiscard]] QLineEdit* field(const QString& flag) const { return fields_.value(flag); }
  [[nodiscard]] QComboBox* resume() const { return resume_; }
  [[nodiscard]] QCheckBox* tick(const QString& flag) const { return ticks_.value(flag); }

 Q_SIGNALS:
  void changed();
  void start_requested();

 protected:
  void changeEvent(QEvent* event) override;

 private:
  QWidget* with_button(QLineEdit* field, bool folder);
  void show_command();

  QLineEdit* plan_;
  QMap<QString, QLineEdit*> fields_;
  QMap<QString, QCheckBox*> ticks_;
  QComboBox* resume_;
  QLineEdit* others_;
  QPlainTextEdit* command_;
  QStringList wrong_;  ///< flags
};

}  // namespace echelon::gui
