// The first page: examples to begin with, recent files, what can be dropped here.
#pragma once

#include <QLabel>
#include <QScrollArea>
#include <QStringList>
#include <QVBoxLayout>
#include <vector>

#include "gui/sheet.hpp"

namespace echelon::gui {

/// A question worth a click.
struct Example {
  const char* model;
  int gpus;
  const char* cluster;  ///< "" for the default
  const char* words;    ///< of the machine
  const char* tokens;   ///< it was trained on
  const char* batch;    ///< samples, "" for the default
};
[[nodiscard]] const std::vector<Example>& examples();
[[nodiscard]] Sheet sheet_of(const Example& example);

class Welcome : public QScrollArea {
  Q_OBJECT

 public:
  explicit Welcome(QWidget* parent = nullptr);
  /// Newest first. `last`: what was worked on when the window was closed, or "".
  void show_recent(const QStringList& files, const QString& last);

 Q_SIGNALS:
  void asked(const Sheet& sheet);
  void file_chosen(const QString& path);
  void open_wanted();

 private:
  QVBoxLayout* recent_ = nullptr;
  QWidget* recent_box_ = nullptr;
};

}  // namespace echelon::gui
