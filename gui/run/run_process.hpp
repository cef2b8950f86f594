// Runs `plan run` as a child process, which never outlives the window.
#pragma once

#include <QObject>
#include <QProcess>
#include <QStringList>
#include <QTimer>
#include <optional>

#include "core/run/run_event.hpp"

namespace echelon::gui {

class RunProcess : public QObject {
  Q_OBJECT

 public:
  static constexpr int kPatience = 3000;

  /// `patience`: milliseconds from the second stop() to SIGKILL.
  explicit RunProcess(QObject* parent = nullptr, int patience = kPatience);
  /// Ends a running process: after its step, then at once, then by SIGKILL.
  ~RunProcess() override;

  /// `program` is plan; `arguments` start with "run". Requires that no process is running.
  void start(const QString& program, const QStringList& arguments);
  [[nodiscard]] bool running() const { return process_.state() != QProcess::NotRunning; }
  /// The first call ends the run after its step, with checkpoint and report; the second at once.
  void stop();
  /// Number of stop() calls.
  [[nodiscard]] int stop_requests() const { return stop_requests_; }
  [[nodiscard]] qint64 process() const { return process_.processId(); }

 Q_SIGNALS:
  void event_received(const RunEvent& event);
  void line_received(const QString& line, bool is_error);
  /// `code`: its exit code; empty if a signal ended it.
  void ended(std::optional<int> code);
  void failed(const QString& reason);

 private:
  void read_lines(QByteArray& rest, bool is_error);
  void kill_with_children();

  QProcess process_;
  QTimer kill_timer_;
  QByteArray out_;
  QByteArray err_;
  int stop_requests_ = 0;
};

}  // namespace echelon::gui
