#include "runtime/threads/run_threads.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

/// Number of the calling thread among its RunThreads; none for other threads.
thread_local std::optional<int> this_member;
thread_local std::optional<Seconds> long_wait;

/// How long a wait spins. Sleeping and being woken takes some 5 to 50 us on Linux, so spinning at
/// most doubles a wait.
constexpr auto kAwake = std::chrono::microseconds(50);
/// After so many fruitless spins in a row a monitor is awaited asleep, except for an occasional
/// try: the awaited thread computes for long, or needs the core on which this one would spin.
constexpr unsigned kTries = 3;
constexpr unsigned kTryAgain = 32;

void pause_a_moment() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

std::string in_words(const std::function<std::string()>& waiting) {
  return waiting ? ": " + waiting() : std::string();
}

}  // namespace

LongWait::LongWait(Seconds limit) : before_(std::exchange(long_wait, limit)) {}

LongWait::~LongWait() { long_wait = before_; }

std::optional<Seconds> RunThreads::deadline() const {
  if (!deadline_) return {};
  return std::max(*deadline_, long_wait.value_or(*deadline_));
}

void RunThreads::add(std::string name, std::function<void()> work) {
  Member& member = members_.emplace_back();
  member.name = std::move(name);
  member.work = std::move(work);
  member.ready = nullptr;
  member.waiting = nullptr;
}

void RunThreads::run() {
  std::vector<std::jthread> threads;
  threads.reserve(members_.size());
  spins_ = !directed() && members_.size() <= std::thread::hardware_concurrency();
  if (directed()) {
    const std::lock_guard lock(mutex_);
    schedule_next();
  }
  for (int number = 0; number < static_cast<int>(members_.size()); ++number) {
    threads.emplace_back([this, number] { run_member(number); });
  }
  threads.clear();  // joins
  if (failure_) std::rethrow_exception(failure_);
}

void RunThreads::run_member(int number) {
  this_member = number;
  Member& self = *std::next(members_.begin(), number);
  try {
    if (directed()) {
      std::unique_lock lock(mutex_);
      self.turn.wait(lock, [&] { return turn_ == number || failure_; });
    }
    self.work();
  } catch (...) {
    fail(std::current_exception());
  }
  const std::lock_guard lock(mutex_);
  self.over = true;
  if (directed() && !failure_) schedule_next();
}

void RunThreads::fail(std::exception_ptr why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = with_whereabouts(std::move(why));
    stopping_ = true;
    for (Member& member : members_) member.turn.notify_all();
  }
  const std::lock_guard here(monitors_mutex_);  // none goes away meanwhile
  for (Monitor* monitor : monitors_) {
    // Taking the lock once ensures that no thread is between its check and its sleep.
    { const std::lock_guard lock(monitor->mutex()); }
    monitor->changed_.notify_all();
  }
}

/// For a lost peer, adds what every member was doing: step, instruction, partners.
std::exception_ptr RunThreads::with_whereabouts(std::exception_ptr why) {
  const RunFailure failure = as_run_failure(why);
  if (failure.kind() != RunFailure::Kind::peer_lost) return why;
  return std::make_exception_ptr(RunFailure(failure.kind(), failure.what() + whereabouts()));
}

void RunThreads::stop(RunFailure::Kind kind, const std::string& why) {
  fail(std::make_exception_ptr(RunFailure(kind, why)));
}

RunFailure RunThreads::failure() const {
  const std::lock_guard lock(mutex_);
  EXPECTS(failure_ != nullptr, "only a stopped run has failed");
  return as_run_failure(failure_);
}

void RunThreads::hang(const std::string& what) {
  std::string all;
  {
    const std::lock_guard lock(mutex_);
    if (this_member) {
      Member& self = *std::next(members_.begin(), *this_member);
      self.waiting = nullptr;  // `what` says it
      all = " of " + self.name;
    }
    all += what + whereabouts();
  }
  stop(RunFailure::Kind::hang, "no progress within the deadline" + all);
}

void RunThreads::rethrow() {
  std::exception_ptr why;
  {
    const std::lock_guard lock(mutex_);
    why = failure_;
  }
  std::rethrow_exception(why);
}

void RunThreads::set_activity(const std::string& what) {
  EXPECTS(this_member, "only run threads have an activity");
  const std::lock_guard lock(mutex_);
  std::next(members_.begin(), *this_member)->at = what;
}

std::string RunThreads::whereabouts() {
  std::string text;
  for (const Member& member : members_) {
    if (member.over) continue;
    text += "\n  " + member.name + ": " + (member.at.empty() ? "-" : member.at);
    if (member.waiting == nullptr || !*member.waiting) continue;
    try {
      text += ", " + (*member.waiting)();
    } catch (const std::exception&) {  // a device that is asked what it does may be broken
    }
  }
  return text;
}

/// Under the lock. If members are left and none is ready, they wait for each other: a deadlock.
void RunThreads::schedule_next() {
  std::vector<int> ready;
  bool anybody = false;
  int number = 0;
  for (Member& member : members_) {
    if (!member.over) {
      anybody = true;
      if (member.ready == nullptr || (*member.ready)()) ready.push_back(number);
    }
    ++number;
  }
  if (!ready.empty()) {
    turn_ = ready.at(pick_next_(ready));
    std::next(members_.begin(), *turn_)->turn.notify_all();
  } else if (anybody && !failure_) {
    failure_ = std::make_exception_ptr(
        RunFailure(RunFailure::Kind::hang, "deadlock, no thread can proceed:" + whereabouts()));
    stopping_ = true;
    for (Member& member : members_) member.turn.notify_all();
  }
}

bool RunThreads::wait_directed(std::unique_lock<std::mutex>& lock,
                               const std::function<bool()>& ready,
                               const std::function<std::string()>& waiting) {
  if (failure_) return false;
  const int number = *this_member;
  Member& self = *std::next(members_.begin(), number);
  self.ready = &ready;
  self.waiting = &waiting;
  schedule_next();
  self.turn.wait(lock, [&] { return turn_ == number || failure_; });
  self.ready = nullptr;
  self.waiting = nullptr;
  return failure_ == nullptr;
}

/// Publishes what a member waits for, for the reports of others, during its lifetime.
class RunThreads::WaitNote {
 public:
  explicit WaitNote(RunThreads& run_threads) : run_threads_(run_threads) {}
  ~WaitNote() {
    if (noted_) show(nullptr);
  }
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;
  void show(const std::function<std::string()>* waiting) {
    noted_ = true;
    if (!this_member) return;
    const std::lock_guard lock(run_threads_.mutex_);
    std::next(run_threads_.members_.begin(), *this_member)->waiting = waiting;
  }
  [[nodiscard]] bool shown() const { return noted_; }

 private:
  RunThreads& run_threads_;
  bool noted_ = false;
};

void RunThreads::poll(const std::function<bool()>& ready,
                      const std::function<std::string()>& waiting) {
  EXPECTS(!directed(), "directed threads wait at monitors only");
  const auto start = std::chrono::steady_clock::now();
  const std::optional<Seconds> limit = deadline();
  WaitNote shown(*this);
  while (!ready()) {
    if (stopping()) rethrow();
    const auto waited = std::chrono::steady_clock::now() - start;
    if (limit && waited > std::chrono::duration<double>(limit->in(kSecond))) {
      hang(in_words(waiting));
      rethrow();
    }
    // Yielding, not pausing: whom we wait for may need this core, whatever process it is in.
    if (waited < 4 * kAwake) {
      std::this_thread::yield();
    } else {
      if (!shown.shown()) shown.show(&waiting);
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(waited / 8, 4 * kAwake));
    }
  }
}

Monitor::Monitor(RunThreads& run_threads) : run_threads_(run_threads) {
  const std::lock_guard lock(run_threads_.monitors_mutex_);
  place_ = run_threads_.monitors_.insert(run_threads_.monitors_.end(), this);
}

Monitor::~Monitor() {
  const std::lock_guard lock(run_threads_.monitors_mutex_);
  run_threads_.monitors_.erase(place_);
}

void Monitor::wake() {
  changes_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
}

/// Spins. Under the lock, which it releases meanwhile. Returns when ready, when the spin limit is
/// reached, or when the run stops.
void Monitor::spin(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) {
  if (ready()) return;
  if (spins_in_vain_ >= kTries && ++spins_in_vain_ % kTryAgain != 0) return;
  const auto until = std::chrono::steady_clock::now() + kAwake;
  std::uint32_t seen = changes_.load(std::memory_order_acquire);
  while (!ready() && !run_threads_.stopping()) {
    lock.unlock();
    for (int i = 1; changes_.load(std::memory_order_acquire) == seen && !run_threads_.stopping();
         ++i) {
      pause_a_moment();
      if (i % 64 == 0 && std::chrono::steady_clock::now() > until) {
        lock.lock();
        ++spins_in_vain_;
        return;
      }
    }
    seen = changes_.load(std::memory_order_acquire);
    lock.lock();
  }
  spins_in_vain_ = 0;
}

void Monitor::await(const std::function<bool()>& ready,
                    const std::function<std::string()>& waiting) {
  std::unique_lock lock(mutex());
  if (run_threads_.directed()) {
    const bool turn = run_threads_.wait_directed(lock, ready, waiting);
    lock.unlock();
    if (!turn) run_threads_.rethrow();
    return;
  }
  if (run_threads_.spins_) spin(lock, ready);
  const auto over = [&] { return ready() || run_threads_.stopping(); };
  const std::optional<Seconds> limit = run_threads_.deadline();
  if (!limit) {
    changed_.wait(lock, over);
  } else if (!changed_.wait_for(lock, std::chrono::duration<double>(limit->in(kSecond)), over)) {
    const std::string what = in_words(waiting);
    lock.unlock();
    run_threads_.hang(what);
  }
  if (lock.owns_lock()) lock.unlock();
  if (run_threads_.stopping()) run_threads_.rethrow();
}

void Monitor::await_uninterruptibly(const std::function<bool()>& ready) {
  std::unique_lock lock(mutex());
  if (run_threads_.directed()) {
    if (run_threads_.wait_directed(lock, ready, {})) return;
  } else if (run_threads_.spins_) {
    spin(lock, ready);
  }
  changed_.wait(lock, ready);
}

}  // namespace echelon
