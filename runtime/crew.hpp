// Crew: the threads of one run, how they wait for each other, and how all of them end together.
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
#include "runtime/failure.hpp"

namespace echelon {

class Gate;

/// Threads that start together and end together: what one throws wakes all others, whose next wait
/// throws as well. In a *directed* crew one thread runs at a time and `choose` says which goes on
/// at every wait, so that a test can drive the run into any order that the waits allow.
class Crew {
 public:
  /// Of the members that could go on (numbers in the order of `add`, rising), the index of the one
  /// that does.
  using Choose = std::function<std::size_t(const std::vector<int>& ready)>;

  /// `deadline`: the longest a member may wait; none by default.
  explicit Crew(std::optional<Seconds> deadline = {}) : deadline_(deadline) {}
  explicit Crew(Choose choose) : choose_(std::move(choose)) {}
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  /// A member; `name` appears in messages ("rank 3 compute").
  void add(std::string name, std::function<void()> work);
  /// Runs all members to their end. Throws what ended the crew: the first failure.
  void run();
  /// Ends the crew from anywhere, for instance a signal's thread.
  void stop(RunFailure::Kind kind, const std::string& why);
  void stop(const RunFailure& failure) { stop(failure.kind(), failure.what()); }
  [[nodiscard]] bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  /// What ended it, while stopping().
  [[nodiscard]] RunFailure failure() const;
  [[nodiscard]] bool directed() const { return static_cast<bool>(choose_); }
  /// What the calling member is at, for the message of a hang. Cheap; called per instruction.
  void doing(const std::string& what);
  /// For what has no gate, such as messages of other processes: asks until `ready()`, more and more
  /// seldom. Throws when the crew ends or the deadline passes; `waiting` as in Gate::await, but
  /// other threads may call it meanwhile, to say what everybody was at.
  void poll(const std::function<bool()>& ready, const std::function<std::string()>& waiting = {});

 private:
  friend class Gate;
  class Shown;
  struct Member {
    std::string name;
    std::function<void()> work;
    std::string at;                               ///< guarded by mutex_
    const std::function<bool()>* ready;           ///< what it waits for; null: nothing
    const std::function<std::string()>* waiting;  ///< that in words, or null; guarded by mutex_
    bool over = false;
    std::condition_variable turn;  ///< directed crews
  };

  void live(int number);
  void fail(std::exception_ptr why);
  [[nodiscard]] std::exception_ptr told_whole(std::exception_ptr why);
  /// False when the crew ends.
  [[nodiscard]] bool wait_directed(std::unique_lock<std::mutex>& lock,
                                   const std::function<bool()>& ready,
                                   const std::function<std::string()>& waiting);
  void pass_on();  ///< directed: picks who goes on
  /// Ends the crew because the calling member waited too long for `what`.
  void hang(const std::string& what);
  [[noreturn]] void rethrow();
  [[nodiscard]] std::string whereabouts();

  std::optional<Seconds> deadline_;
  Choose choose_;
  mutable std::mutex mutex_;
  std::list<Member> members_;
  std::mutex gates_mutex_;  ///< taken before a gate's own
  std::list<Gate*> gates_;  ///< guarded by gates_mutex_
  std::exception_ptr failure_;
  std::atomic<bool> stopping_ = false;  ///< failure_ is set
  bool spins_ = false;                  ///< every member has a core: waits begin awake
  int turn_ = -1;
};

/// Something members wait for: a value guarded by a mutex, with a condition variable.
class Gate {
 public:
  explicit Gate(Crew& crew);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Changes what is guarded and wakes who waits for it.
  template <class Change>
  auto change(Change&& how) {
    struct Wake {
      Gate& gate;
      ~Wake() { gate.wake(); }
    } after{*this};
    return quietly(how);
  }
  /// The same for changes that let nobody go on, or whose author calls wake() afterwards.
  template <class Change>
  auto quietly(Change&& how) {
    const std::lock_guard lock(mutex());
    return how();
  }
  void wake();
  /// Returns when `ready()`, evaluated under the lock, is true. Throws when the crew ends, or the
  /// deadline passes: then the crew ends with a hang that says what everybody was at, and what the
  /// member was `waiting` for (also under the lock).
  void await(const std::function<bool()>& ready, const std::function<std::string()>& waiting = {});
  /// The same for what comes soon whatever happens, and must be awaited even by a crew that ends:
  /// never throws.
  void await_even_at_the_end(const std::function<bool()>& ready);

 private:
  friend class Crew;
  std::mutex& mutex() { return crew_.directed() ? crew_.mutex_ : own_; }
  void spin(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready);

  Crew& crew_;
  std::mutex own_;
  std::condition_variable changed_;
  std::atomic<std::uint32_t> changes_ = 0;  ///< what spinning members look at
  unsigned spins_in_vain_ = 0;              ///< in a row; guarded like what is awaited
  std::list<Gate*>::iterator place_;
};

}  // namespace echelon
