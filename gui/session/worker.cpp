#include "gui/session/worker.hpp"

#include <QMetaObject>
#include <chrono>
#include <utility>

namespace echelon::gui {

namespace {

std::int64_t milliseconds_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

bool Worker::Ticket::progress(double share) const {
  if (stale()) return false;
  // A search reports progress thousands of times a second; only some reports are shown.
  constexpr std::int64_t kBetween = 40;
  const std::int64_t now = milliseconds_now();
  if (now - worker_.last_shown_ < kBetween) return true;
  worker_.last_shown_ = now;
  deliver([worker = &worker_, share] { Q_EMIT worker->progressed(share); });
  return true;
}

void Worker::Ticket::deliver(std::function<void()> callback) const {
  QMetaObject::invokeMethod(
      &worker_,
      [worker = &worker_, number = number_, callback = std::move(callback)] {
        if (worker->generation_ == number) callback();
      },
      Qt::QueuedConnection);
}

Worker::Worker(QObject* parent) : QObject(parent), thread_([this] { loop(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
    next_ = nullptr;
    ++generation_;
  }
  wake_.notify_one();
  thread_.join();
}

void Worker::start(Task task) {
  {
    const std::lock_guard lock(mutex_);
    next_ = std::move(task);
    next_number_ = ++generation_;
  }
  busy_ = true;
  wake_.notify_one();
}

void Worker::cancel() {
  {
    const std::lock_guard lock(mutex_);
    next_ = nullptr;
    ++generation_;
  }
  if (!std::exchange(busy_, false)) return;
  Q_EMIT finished();
}

void Worker::loop() {
  while (true) {
    Task task;
    std::uint64_t number = 0;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return end_ || next_; });
      if (end_) return;
      task = std::exchange(next_, nullptr);
      number = next_number_;
    }
    const Ticket ticket(*this, number);
    if (!ticket.stale()) task(ticket);
    ticket.deliver([this] {
      busy_ = false;
      Q_EMIT finished();
    });
  }
}

}  // namespace echelon::gui
