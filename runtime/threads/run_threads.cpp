#include "runtime/threads/run_threads.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/expects.hpp"
#include "runtime/threads/clock.hpp"

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

std::string in_words(const DescribeWait& waiting) {
  return waiting ? ": " + waiting().text : std::string();
}

/// How long a wait lasts before it is described for others, and the longest time that counts at
/// once: a process that was stopped and continued has not waited meanwhile.
std::chrono::duration<double> slice_of(const std::optional<Seconds>& deadline) {
  constexpr double kLongest = 1;
  return std::chrono::duration<double>(deadline ? std::min(kLongest, deadline->in(kSecond) / 4)
                                                : kLongest);
}

}  // namespace

LongWait::LongWait(Seconds limit) : before_(std::exchange(long_wait, limit)) {}

LongWait::~LongWait() { long_wait = before_; }

void RunThreads::raise_deadline(Seconds deadline) {
  const double seconds = deadline.in(kSecond);
  double before = raised_deadline_;
  while (before < seconds && !raised_deadline_.compare_exchange_weak(before, seconds)) {
  }
}

std::optional<Seconds> RunThreads::deadline() const {
  if (!deadline_) return {};
  return std::max({*deadline_, raised_deadline(), long_wait.value_or(*deadline_)});
}

void RunThreads::add(std::string name, std::function<void()> work, std::optional<int> rank) {
  Member& member = members_.emplace_back();
  member.rank = rank;
  member.name = std::move(name);
  member.work = std::move(work);
  member.since = steady_now().in(kSecond);
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
  self.since.store(steady_now().in(kSecond), std::memory_order_relaxed);
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
  const std::string accused = accuser_ ? accuser_() : std::string();
  std::string all;
  {
    const std::lock_guard lock(mutex_);
    if (this_member) {
      Member& self = *std::next(members_.begin(), *this_member);
      self.waiting = nullptr;  // `what` says it
      self.noted.reset();
      all = " of " + self.name;
    }
    all += what + whereabouts();
  }
  stop(RunFailure::Kind::hang,
       (accused.empty() ? "" : accused + "; ") + "no progress within the deadline" + all);
}

void RunThreads::rethrow() {
  std::exception_ptr why;
  {
    const std::lock_guard lock(mutex_);
    why = failure_;
  }
  std::rethrow_exception(why);
}

void RunThreads::set_activity(const std::string& what, std::uint64_t order) {
  EXPECTS(this_member, "only run threads have an activity");
  Member& self = *std::next(members_.begin(), *this_member);
  if (log_ && self.rank) log_({*self.rank, self.name, order, what, {}});
  self.since.store(steady_now().in(kSecond), std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  self.at = what;
  if (order != 0) self.order = order;
}

void RunThreads::note_wait(const DescribeWait& waiting) {
  if (!this_member || !waiting) return;
  WaitDescription now = waiting();
  Member& self = *std::next(members_.begin(), *this_member);
  std::string at;
  std::uint64_t order = 0;
  {
    const std::lock_guard lock(mutex_);
    if (self.noted && self.noted->text == now.text) return;
    self.noted = now;
    at = self.at + ", " + now.text;
    order = self.order;
  }
  if (log_ && self.rank) log_({*self.rank, self.name, order, at, now.missing});
}

std::string RunThreads::whereabouts() {
  std::string text;
  for (const Member& member : members_) {
    if (member.over) continue;
    text += "\n  " + member.name + ": " + (member.at.empty() ? "-" : member.at);
    if (member.noted) text += ", " + member.noted->text;
    if (member.waiting == nullptr || !*member.waiting) continue;
    try {
      text += ", " + (*member.waiting)().text;
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
                               const std::function<bool()>& ready, const DescribeWait& waiting) {
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

/// Marks the member as sleeping during its lifetime.
class RunThreads::Asleep {
 public:
  explicit Asleep(RunThreads& run_threads) : run_threads_(run_threads) {
    if (!this_member) return;
    self_ = &*std::next(run_threads.members_.begin(), *this_member);
    self_->waits.store(true);
  }
  ~Asleep() {
    if (self_ == nullptr) return;
    self_->waits.store(false);
    self_->since.store(steady_now().in(kSecond), std::memory_order_relaxed);
    const std::lock_guard lock(run_threads_.mutex_);
    self_->noted.reset();
  }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  RunThreads& run_threads_;
  Member* self_ = nullptr;
};

/// Publishes what a member waits for, for the reports of others, during its lifetime.
class RunThreads::WaitNote {
 public:
  explicit WaitNote(RunThreads& run_threads) : run_threads_(run_threads) {}
  ~WaitNote() {
    if (noted_) show(nullptr);
  }
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;
  void show(const DescribeWait* waiting) {
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

void RunThreads::poll(const std::function<bool()>& ready, const DescribeWait& waiting,
                      Seconds awake) {
  EXPECTS(!directed(), "directed threads wait at monitors only");
  using Time = std::chrono::duration<double>;
  const Time slice = slice_of(deadline_);
  auto last = std::chrono::steady_clock::now();
  Time waited{};
  std::optional<Asleep> asleep;
  WaitNote shown(*this);
  while (!ready()) {
    if (stopping()) rethrow();
    const auto now = std::chrono::steady_clock::now();
    waited += std::min<Time>(now - last, slice);
    last = now;
    const std::optional<Seconds> limit = deadline();  // which may be raised meanwhile
    if (limit && waited > Time(limit->in(kSecond))) {
      hang(in_words(waiting));
      rethrow();
    }
    // Yielding, not pausing: whom we wait for may need this core, whatever process it is in.
    if (waited < Time(awake.in(kSecond))) {
      std::this_thread::yield();
    } else {
      if (!asleep) asleep.emplace(*this);
      if (!shown.shown()) shown.show(&waiting);
      std::this_thread::sleep_for(std::min<Time>(waited / 8, 4 * kAwake));
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

void Monitor::await(const std::function<bool()>& ready, const DescribeWait& waiting) {
  std::unique_lock lock(mutex());
  if (run_threads_.directed()) {
    const bool turn = run_threads_.wait_directed(lock, ready, waiting);
    lock.unlock();
    if (!turn) run_threads_.rethrow();
    return;
  }
  if (run_threads_.spins_) spin(lock, ready);
  const auto over = [&] { return ready() || run_threads_.stopping(); };
  if (!over()) sleep(lock, over, waiting);
  if (lock.owns_lock()) lock.unlock();
  if (run_threads_.stopping()) run_threads_.rethrow();
}

/// Under the lock; a hang releases it.
void Monitor::sleep(std::unique_lock<std::mutex>& lock, const std::function<bool()>& over,
                    const DescribeWait& waiting) {
  const RunThreads::Asleep asleep(run_threads_);
  const auto slice = slice_of(run_threads_.deadline_);
  auto waited = slice;
  for (; !changed_.wait_for(lock, slice, over); waited += slice) {
    const std::optional<Seconds> limit = run_threads_.deadline();  // which may be raised meanwhile
    if (limit && waited.count() >= limit->in(kSecond)) {
      const std::string what = in_words(waiting);
      lock.unlock();
      return run_threads_.hang(what);
    }
    run_threads_.note_wait(waiting);
  }
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
