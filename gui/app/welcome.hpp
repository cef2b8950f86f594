// The welcome page: examples and recent files.
#pragma once

#include <QLabel>
#include <QScrollArea>
#include <QStringList>
#include <QVBoxLayout>
#include <vector>

#include "gui/session/query.hpp"

namespace echelon::gui {

/// An example query.
struct Example {
  const char* model;
  int gpus;
  const char* cluster;  ///< "" for the default
  const char* machine;  ///< name of the machine as shown
  const char* tokens;   ///< training tokens, as published
  const char* batch;    ///< samples, "" for the default
};
[[nodiscard]] const std::vector<Example>& examples();
[[nodiscard]] Query query_of(const Example& example);

class Welcome : public QScrollArea {
  Q_OBJECT

 public:
  explicit Welcome(QWidget* parent = nullptr);
  /// Newest first. `last`: the session that was open when the window was closed, or "".
  void show_recent(const QStringList& files, const QString& last);

 Q_SIGNALS:
  void example_chosen(const Query& query);
  void file_chosen(const QString& path);
  void open_requested();

 private:
  QVBoxLayout* recent_ = nullptr;
  QWidget* recent_box_ = nullptr;
};

}  // namespace echelon::gui
