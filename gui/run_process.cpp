#include "gui/run_process.hpp"

#include <sys/prctl.h>

#include <QFile>
#include <csignal>

namespace echelon::gui {
namespace {

/// Processes that `parent` has started. Source: proc(5), /proc/PID/task/TID/children.
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
  patience_.setInterval(patience);
  // Should the window die without a word, plan gets SIGTERM, and what plan started gets it then.
  process_.setChildProcessModifier([] { prctl(PR_SET_PDEATHSIG, SIGTERM); });
  process_.setStandardInputFile(QProcess::nullDevice());
  patience_.setSingleShot(true);
  connect(&patience_, &QTimer::timeout, this, &RunProcess::kill_with_children);
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
      Q_EMIT failed(QString("%1: %2; it is built and installed beside plan-gui")
                        .arg(process_.program(), process_.errorString()));
    }
  });
  connect(&process_, &QProcess::finished, this, [this](int code, QProcess::ExitStatus status) {
    patience_.stop();
    for (QByteArray* rest : {&out_, &err_}) {  // a last line without its end
      if (!rest->isEmpty()) rest->append('\n');
      read_lines(*rest, rest == &err_);
    }
    Q_EMIT ended(status == QProcess::CrashExit ? -1 : code);
  });
}

RunProcess::~RunProcess() {
  constexpr int kAStep = 1500;
  constexpr int kAtOnce = 2000;
  process_.disconnect(this);
  if (!running()) return;
  while (wishes_ < 1) stop();
  if (process_.waitForFinished(kAStep)) return;
  stop();
  if (process_.waitForFinished(kAtOnce)) return;
  kill_with_children();
  process_.waitForFinished(kAtOnce);
}

void RunProcess::start(const QString& program, const QStringList& arguments) {
  wishes_ = 0;
  out_.clear();
  err_.clear();
  process_.start(program, arguments);
}

void RunProcess::stop() {
  if (!running() || process_.processId() <= 0) return;
  ++wishes_;
  ::kill(static_cast<pid_t>(process_.processId()), SIGINT);
  if (wishes_ > 1 && !patience_.isActive()) patience_.start();
}

void RunProcess::kill_with_children() {
  if (!running()) return;
  ::kill(static_cast<pid_t>(process_.processId()), SIGSTOP);  // it starts no more of them
  for (const pid_t child : children_of(process_.processId())) {
    ::kill(-child, SIGKILL);  // plan gives what it starts a group of its own
    ::kill(child, SIGKILL);
  }
  process_.kill();
}

/// Events are JSON objects, a line each; all else is for people.
void RunProcess::read_lines(QByteArray& rest, bool complaint) {
  for (qsizetype end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
    const QByteArray line = rest.left(end);
    rest.remove(0, end + 1);
    if (line.isEmpty()) continue;
    if (!complaint && line.startsWith('{')) {
      const Result<RunEvent> event = parse_run_event(line.toStdString(), "plan run");
      if (event) {
        Q_EMIT heard(*event);
        continue;
      }
    }
    Q_EMIT said(QString::fromUtf8(line), complaint);
  }
}

}  // namespace echelon::gui
