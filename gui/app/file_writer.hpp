// Writes files that take seconds to generate in a worker thread, with progress and cancellation.
#pragma once

#include <QObject>
#include <QString>
#include <functional>
#include <string>

#include "core/base/result.hpp"
#include "gui/session/results.hpp"
#include "gui/session/worker.hpp"
#include "planner/search/search_outcome.hpp"

namespace echelon::gui {

/// The text of a plan file or a trace. Takes seconds for millions of instructions; too many of them
/// are an error. Returns early, with an arbitrary error, once `progress` returns false.
[[nodiscard]] Result<std::string> plan_file_text(const PlanResult& plan, const Progress& progress);
[[nodiscard]] Result<std::string> trace_text(const PlanResult& plan, const Progress& progress);

class FileWriter : public QObject {
  Q_OBJECT

 public:
  /// Called in the worker thread; owns its data and does not use the window.
  using Make = std::function<Result<std::string>(const Progress&)>;

  explicit FileWriter(QObject* parent = nullptr);
  /// False while another file is being written.
  [[nodiscard]] bool write(const QString& path, Make make);
  /// The file stays unchanged.
  void cancel() { worker_.cancel(); }
  [[nodiscard]] bool busy() const { return worker_.busy(); }
  /// Path of the last file.
  [[nodiscard]] QString path() const { return path_; }

 Q_SIGNALS:
  void progressed(double share);
  void written(const QString& path, const Status& status);
  void finished();  ///< written or cancelled

 private:
  QString path_;
  Worker worker_;
};

}  // namespace echelon::gui
