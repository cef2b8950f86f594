// Files that take seconds to make: written beside the window, with progress and cancel.
#pragma once

#include <QObject>
#include <QString>
#include <functional>
#include <string>

#include "core/base/result.hpp"
#include "gui/shown.hpp"
#include "gui/worker.hpp"
#include "planner/search.hpp"

namespace echelon::gui {

/// The text of a plan file or a trace. Takes seconds for millions of instructions; the error says
/// when there are too many. Stops early, with any error, once `progress` says so.
[[nodiscard]] Result<std::string> plan_file_text(const ShownPlan& plan, const Progress& progress);
[[nodiscard]] Result<std::string> trace_text(const ShownPlan& plan, const Progress& progress);

class Writer : public QObject {
  Q_OBJECT

 public:
  /// Called in another thread: with values of its own, and nothing of the window.
  using Make = std::function<Result<std::string>(const Progress&)>;

  explicit Writer(QObject* parent = nullptr);
  /// One at a time: false while another file is being written.
  [[nodiscard]] bool write(const QString& path, Make make);
  /// The file stays as it was.
  void cancel() { worker_.cancel(); }
  [[nodiscard]] bool busy() const { return worker_.busy(); }
  /// Of the file that is or was written last.
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
