// `plan run` as a child: what it tells while it runs, and that it never outlives the window.
#pragma once

#include <QObject>
#include <QProcess>
#include <QStringList>
#include <QTimer>

#include "core/run/run_event.hpp"

namespace echelon::gui {

class RunProcess : public QObject {
  Q_OBJECT

 public:
  static constexpr int kPatience = 3000;

  /// `patience`: milliseconds from "at once" to force.
  explicit RunProcess(QObject* parent = nullptr, int patience = kPatience);
  /// Ends what still runs: a wish, then at once, then by force.
  ~RunProcess() override;

  /// `program` is plan; `arguments` begin with "run". Not while another runs.
  void start(const QString& program, const QStringList& arguments);
  [[nodiscard]] bool running() const { return process_.state() != QProcess::NotRunning; }
  /// The first time: after this step, with checkpoint and report. Again: at once.
  void stop();
  /// How often stop() was called.
  [[nodiscard]] int wishes() const { return wishes_; }
  [[nodiscard]] qint64 process() const { return process_.processId(); }

 Q_SIGNALS:
  void heard(const RunEvent& event);
  void said(const QString& line, bool complaint);
  /// `code`: its exit code, or -1 when a signal ended it.
  void ended(int code);
  void failed(const QString& reason);

 private:
  void read_lines(QByteArray& rest, bool complaint);
  void kill_with_children();

  QProcess process_;
  QTimer patience_;
  QByteArray out_;
  QByteArray err_;
  int wishes_ = 0;
};

}  // namespace echelon::gui
