// What a run is started with, as a form: fields are flags of `plan run`, empty ones their defaults.
#pragma once

#include <QCheckBox>
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
  /// Flags without a field of their own go to the last one.
  void set_flags(const QStringList& flags);
  /// As typed into a shell.
  [[nodiscard]] QString command() const;

  /// Marks the field whose flag this complaint names; true when there is one.
  bool mark_wrong(const QString& complaint);
  void clear_marks();
  [[nodiscard]] QLineEdit* field(const QString& flag) const { return fields_.value(flag); }
  [[nodiscard]] QCheckBox* tick(const QString& flag) const { return ticks_.value(flag); }

 Q_SIGNALS:
  void changed();
  void start_asked();

 protected:
  void changeEvent(QEvent* event) override;

 private:
  QWidget* with_button(QLineEdit* field, bool folder);
  void show_command();

  QLineEdit* plan_;
  QMap<QString, QLineEdit*> fields_;
  QMap<QString, QCheckBox*> ticks_;
  QLineEdit* others_;
  QPlainTextEdit* command_;
  QStringList wrong_;  ///< flags
};

}  // namespace echelon::gui
