// One worker thread. A newer task makes the previous one stale: its remaining results are dropped.
#pragma once

#include <QObject>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace echelon::gui {

class Worker : public QObject {
  Q_OBJECT

 public:
  /// Interface of a task to the window; called in the worker thread.
  class Ticket {
   public:
    Ticket(Worker& worker, std::uint64_t number) : worker_(worker), number_(number) {}
    /// Reports the share done. False: the result is no longer wanted.
    [[nodiscard]] bool progress(double share) const;
    [[nodiscard]] bool stale() const { return worker_.generation_ != number_; }
    /// Calls `callback` in the window's thread unless the task is stale by then.
    void deliver(std::function<void()> callback) const;

   private:
    Worker& worker_;
    std::uint64_t number_;
  };
  using Task = std::function<void(const Ticket&)>;

  explicit Worker(QObject* parent = nullptr);
  /// Waits for the running task; its next call of progress() returns false.
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start(Task task);
  void cancel();
  /// True while a task waits or runs and is not cancelled.
  [[nodiscard]] bool busy() const { return busy_; }

 Q_SIGNALS:
  void progressed(double share);
  void finished();  ///< done or cancelled; not emitted for a replaced task

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  Task next_;
  std::uint64_t next_number_ = 0;
  bool end_ = false;
  std::atomic<std::uint64_t> generation_ = 0;
  std::atomic<std::int64_t> last_shown_ = 0;  ///< milliseconds of the steady clock
  bool busy_ = false;                         ///< used in the window's thread only
  std::thread thread_;
};

}  // namespace echelon::gui
