// One thread beside the window's. A newer task makes the one before it stale: what it still has to
// say is dropped.
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
  /// What a task talks through; its functions are called in the worker's thread.
  class Ticket {
   public:
    Ticket(Worker& worker, std::uint64_t number) : worker_(worker), number_(number) {}
    /// Shows the share done. False: nobody wants the result any more.
    [[nodiscard]] bool progress(double share) const;
    [[nodiscard]] bool stale() const { return worker_.generation_ != number_; }
    /// Calls `say` in the window's thread, unless the task is stale by then.
    void deliver(std::function<void()> say) const;

   private:
    Worker& worker_;
    std::uint64_t number_;
  };
  using Task = std::function<void(const Ticket&)>;

  explicit Worker(QObject* parent = nullptr);
  /// Waits for the running task, which its progress tells to stop.
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start(Task task);
  void cancel();
  /// A task is waiting or running, and is wanted.
  [[nodiscard]] bool busy() const { return busy_; }

 Q_SIGNALS:
  void progressed(double share);
  void finished();  ///< done or cancelled, never replaced

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  Task next_;
  std::uint64_t next_number_ = 0;
  bool end_ = false;
  std::atomic<std::uint64_t> generation_ = 0;
  std::atomic<std::int64_t> last_shown_ = 0;  ///< milliseconds of the steady clock
  bool busy_ = false;                         ///< the window's thread alone
  std::thread thread_;
};

}  // namespace echelon::gui
