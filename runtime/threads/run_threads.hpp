// RunThreads: the threads of one run, how they wait for each other, and how all of them end
// together.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/units.hpp"
#include "core/run/rank_status.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon {

class Monitor;

/// While it exists, waits of the calling thread may last this long, if that is longer than the
/// run's deadline: for work whose duration the deadline does not foresee, such as checkpoints.
class LongWait {
 public:
  explicit LongWait(Seconds limit);
  ~LongWait();
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;

 private:
  std::optional<Seconds> before_;
};

/// What a member waits for, and the ranks that have not arrived (none: it waits for itself).
struct WaitDescription {
  WaitDescription(std::string what, std::vector<int> absent = {})  // NOLINT: text is one
      : text(std::move(what)), missing(std::move(absent)) {}
  std::string text;
  std::vector<int> missing;
};
using DescribeWait = std::function<WaitDescription()>;

/// Threads that start together and stop together: an exception in one wakes all others, whose next
/// wait throws as well. In a *directed* run one thread runs at a time, and `pick_next` chooses
/// which one continues at every wait, so that a test can drive the run into any order that the
/// waits allow.
class RunThreads {
 public:
  /// Among the members that can continue (numbers in the order of `add`, ascending): the index of
  /// the one that does.
  using PickNext = std::function<std::size_t(const std::vector<int>& ready)>;

  /// `deadline`: the longest wait of a member; none by default. `start_up`: … before the first
  /// step, if that is longer.
  explicit RunThreads(std::optional<Seconds> deadline = {}, Seconds start_up = {})
      : deadline_(deadline), start_up_(start_up) {}
  explicit RunThreads(PickNext pick_next) : pick_next_(std::move(pick_next)) {}
  RunThreads(const RunThreads&) = delete;
  RunThreads& operator=(const RunThreads&) = delete;

  /// Adds a member; `name` appears in messages ("rank 3 compute"), `rank` in progress().
  void add(std::string name, std::function<void()> work, std::optional<int> rank = {});
  /// Runs all members to completion. Throws the first failure.
  void run();
  /// Stops the run from any thread, for instance a signal handler's.
  void stop(RunFailure::Kind kind, const std::string& why);
  void stop(const RunFailure& failure) { stop(failure.kind(), failure.what()); }
  [[nodiscard]] bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  /// The first failure; only while stopping().
  [[nodiscard]] RunFailure failure() const;
  /// The longest wait becomes at least this, also for waits that have begun; never shorter. Without
  /// a deadline there stays none.
  void raise_deadline(Seconds deadline);
  [[nodiscard]] Seconds start_up() const { return start_up_; }
  /// The longest of those, 0 s without one.
  [[nodiscard]] Seconds raised_deadline() const { return Seconds{raised_deadline_}; }
  [[nodiscard]] bool directed() const { return static_cast<bool>(pick_next_); }
  /// Stops the run because the calling member, or a member that another thread watches, waited too
  /// long. `what` follows "no progress within the deadline": ": barrier ...".
  void hang(const std::string& what);
  /// Longest wait of the calling thread.
  [[nodiscard]] std::optional<Seconds> deadline() const;
  /// Current activity of the calling member, for the message of a hang; `order`: its place in the
  /// run. Cheap; called per instruction.
  void set_activity(const std::string& what, std::uint64_t order = 0);
  /// The ranks of the members, ascending.
  [[nodiscard]] std::vector<RankProgress> progress();
  /// Names the rank that holds up the run ("" if unknown), for the message of a hang. Set while no
  /// member runs.
  void set_accuser(std::function<std::string()> accuser) { accuser_ = std::move(accuser); }
  /// Receives every activity and wait of a member with a rank. Set while no member runs.
  struct LogEntry {
    int rank;
    const std::string& member;
    std::uint64_t order;
    const std::string& what;
    const std::vector<int>& missing;  ///< ranks that it waits for
  };
  using Log = std::function<void(const LogEntry&)>;
  void set_log(Log log) { log_ = std::move(log); }
  /// For events without a monitor, such as messages of other processes: polls `ready()` with
  /// increasing back-off. Throws when the run stops or the deadline passes; `waiting` as in
  /// Monitor::await, but other threads may call it meanwhile to report what every member was doing.
  /// Until `awake` has passed it yields and does not sleep, so that it returns at once.
  void poll(const std::function<bool()>& ready, const DescribeWait& waiting = {},
            Seconds awake = Seconds{200e-6});

 private:
  friend class Monitor;
  class WaitNote;
  class Asleep;
  struct Member {
    std::string name;
    std::function<void()> work;
    std::optional<int> rank;
    std::string at;                        ///< guarded by mutex_
    std::uint64_t order = 0;               ///< of `at`; guarded by mutex_
    std::optional<WaitDescription> noted;  ///< a wait that lasts; guarded by mutex_
    std::atomic<bool> waits = false;       ///< sleeps
    std::atomic<double> since = 0;         ///< seconds of the steady clock: last progress
    const std::function<bool()>* ready;    ///< condition it waits for; null: none
    const DescribeWait* waiting;           ///< its description, or null; guarded by mutex_
    bool over = false;
    std::condition_variable turn;  ///< directed runs
  };

  void run_member(int number);
  void fail(std::exception_ptr why);
  [[nodiscard]] std::exception_ptr with_whereabouts(std::exception_ptr why);
  /// False when the run stops.
  [[nodiscard]] bool wait_directed(std::unique_lock<std::mutex>& lock,
                                   const std::function<bool()>& ready, const DescribeWait& waiting);
  void schedule_next();  ///< directed: picks the next member
  [[noreturn]] void rethrow();
  [[nodiscard]] std::string whereabouts();
  /// The member's wait has lasted for a while. `waiting` is evaluated without mutex_.
  void note_wait(const DescribeWait& waiting);

  std::optional<Seconds> deadline_;
  Seconds start_up_;
  std::atomic<double> raised_deadline_ = 0;  ///< seconds
  PickNext pick_next_;
  std::function<std::string()> accuser_;
  Log log_;
  mutable std::mutex mutex_;
  std::list<Member> members_;
  std::mutex monitors_mutex_;     ///< locked before a monitor's own
  std::list<Monitor*> monitors_;  ///< guarded by monitors_mutex_
  std::exception_ptr failure_;
  std::atomic<bool> stopping_ = false;  ///< failure_ is set
  bool spins_ = false;                  ///< every member has a core: waits spin first
  std::optional<int> turn_;             ///< directed: the member that runs
};

/// A value guarded by a mutex, with a condition variable for members that wait for it.
class Monitor {
 public:
  explicit Monitor(RunThreads& run_threads);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Changes the guarded value and wakes all waiting members.
  template <class Change>
  auto change(Change&& how) {
    struct Wake {
      Monitor& monitor;
      ~Wake() { monitor.wake(); }
    } after{*this};
    return with_lock(how);
  }
  /// The same without waking: for changes that release no waiting member, or if the caller calls
  /// wake() afterwards.
  template <class Change>
  auto with_lock(Change&& how) {
    const std::lock_guard lock(mutex());
    return how();
  }
  void wake();
  /// Returns when `ready()`, evaluated under the lock, is true. Throws when the run stops. When the
  /// deadline passes it stops the run with a hang that reports what every member was doing and what
  /// this one was `waiting` for (also evaluated under the lock).
  void await(const std::function<bool()>& ready, const DescribeWait& waiting = {});
  /// The same for events that are certain to come soon; also waits while the run is stopping. Never
  /// throws.
  void await_uninterruptibly(const std::function<bool()>& ready);

 private:
  friend class RunThreads;
  std::mutex& mutex() { return run_threads_.directed() ? run_threads_.mutex_ : own_; }
  void spin(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready);
  void sleep(std::unique_lock<std::mutex>& lock, const std::function<bool()>& over,
             const DescribeWait& waiting);

  RunThreads& run_threads_;
  std::mutex own_;
  std::condition_variable changed_;
  std::atomic<std::uint32_t> changes_ = 0;  ///< read by spinning members
  unsigned spins_in_vain_ = 0;              ///< in a row; guarded like what is awaited
  std::list<Monitor*>::iterator place_;
};

}  // namespace echelon
