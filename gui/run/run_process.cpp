#include "gui/run/run_process.hpp"

#include <sys/prctl.h>

#include <QFile>
#include <csignal>

namespace echelon::gui {
namespace {

/// Child processes of `parent`. Source: proc(5), /proc/PID/task/TID/children.
QList<pid_t> children_of(qint64 parent) {
  QFile file(QString("/proc/%1/task/%1/children").arg(parent));
  QList<pid_t> children;
  if (!file.open(QIODevice::ReadOnly)) return children;
  for (const QByteArray& word : file.readAll().split(' ')) {
    if (!word.trimmed().isEmpty()) children.push_back(word.toInt());
  }
  return children;
}

}  // namespace

RunProcess::RunProcess(QObject* parent, int patience) : QObject(parent) {
  kill_timer_.setInterval(patience);
  // If the window is killed, plan gets SIGTERM and passes it on to its processes.
  process_.setChildProcessModifier([] { prctl(PR_SET_PDEATHSIG, SIGTERM); });
  process_.setStandardInputFile(QProcess::nullDevice());
  kill_timer_.setSingleShot(true);
  connect(&kill_timer_, &QTimer::timeout, this, &RunProcess::kill_with_children);
  connect(&process_, &QProcess::readyReadStandardOutput, this, [this] {
    out_ += process_.readAllStandardOutput();
    read_lines(out_, false);
  });
  connect(&process_, &QProcess::readyReadStandardError, this, [this] {
    err_ += process_.readAllStandardError();
    read_lines(err_, true);
  });
  connect(&process_, &QProcess::errorOccurred, this, [this](QProcess::ProcessError error) {
    if (error == QProcess::FailedToStart) {
      Q_EMIT failed(QString("%1: %2; it is built and installed next to plan-gui")
                        .arg(process_.program(), process_.errorString()));
    }
  });
  connect(&process_, &QProcess::finished, this, [this](int code, QProcess::ExitStatus status) {
    kill_timer_.stop();
    for (QByteArray* rest : {&out_, &err_}) {  // a last line without a newline
      if (!rest->isEmpty()) rest->append('\n');
      read_lines(*rest, rest == &err_);
    }
    Q_EMIT ended(status == QProcess::CrashExit ? std::nullopt : std::optional(code));
  });
}

RunProcess::~RunProcess() {
  constexpr int kOneStep = 1500;
  constexpr int kAtOnce = 2000;
  process_.disconnect(this);
  if (!running()) return;
  while (stop_requests_ < 1) stop();
  if (process_.waitForFinished(kOneStep)) return;
  stop();
  if (process_.waitForFinished(kAtOnce)) return;
  kill_with_children();
  process_.waitForFinished(kAtOnce);
}

void RunProcess::start(const QString& program, const QStringList& arguments) {
  stop_requests_ = 0;
  out_.clear();
  err_.clear();
  process_.start(program, arguments);
}

void RunProcess::stop() {
  if (!running() || process_.processId() <= 0) return;
  ++stop_requests_;
  ::kill(static_cast<pid_t>(process_.processId()), SIGINT);
  if (stop_requests_ > 1 && !kill_timer_.isActive()) kill_timer_.start();
}

void RunProcess::kill_with_children() {
  if (!running()) return;
  ::kill(static_cast<pid_t>(process_.processId()), SIGSTOP);  // it starts no further children
  for (const pid_t child : children_of(process_.processId())) {
    ::kill(-child, SIGKILL);  // plan starts its children in their own groups
    ::kill(child, SIGKILL);
  }
  process_.kill();
}

/// Events are JSON objects, one per line; other lines are plain text.
void RunProcess::read_lines(QByteArray& rest, bool is_error) {
  for (qsizetype end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
    const QByteArray line = rest.left(end);
    rest.remove(0, end + 1);
    if (line.isEmpty()) continue;
    if (!is_error && line.startsWith('{')) {
      const Result<RunEvent> event = parse_run_event(line.toStdString(), "plan run");
      if (event) {
        Q_EMIT event_received(*event);
        continue;
      }
    }
    Q_EMIT line_received(QString::fromUtf8(line), is_error);
  }
}

}  // namespace echelon::gui
