#include "runtime/crew.hpp"

#include <algorithm>
#include <chrono>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

/// Number of the calling thread in its crew; -1 for threads of no crew.
thread_local int this_member = -1;

/// How long a wait stays awake. Sleeping and being woken takes some 5 to 50 us on Linux, so that
/// this at most doubles a wait.
constexpr auto kAwake = std::chrono::microseconds(50);
/// Gates at which that was in vain so often are waited at asleep, save for a try now and then: who
/// is awaited computes for long, or needs the core on which we would stay awake.
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

void Crew::add(std::string name, std::function<void()> work) {
  Member& member = members_.emplace_back();
  member.name = std::move(name);
  member.work = std::move(work);
  member.ready = nullptr;
  member.waiting = nullptr;
}

void Crew::run() {
  std::vector<std::jthread> threads;
  threads.reserve(members_.size());
  spins_ = !directed() && members_.size() <= std::thread::hardware_concurrency();
  if (directed()) {
    const std::lock_guard lock(mutex_);
    pass_on();
  }
  for (int number = 0; number < static_cast<int>(members_.size()); ++number) {
    threads.emplace_back([this, number] { live(number); });
  }
  threads.clear();  // joins
  if (failure_) std::rethrow_exception(failure_);
}

void Crew::live(int number) {
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
  if (directed() && !failure_) pass_on();
}

void Crew::fail(std::exception_ptr why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = told_whole(std::move(why));
    stopping_ = true;
    for (Member& member : members_) member.turn.notify_all();
  }
  const std::lock_guard here(gates_mutex_);  // none goes away meanwhile
  for (Gate* gate : gates_) {
    // Taking the lock once makes sure that nobody is between looking and sleeping.
    { const std::lock_guard lock(gate->mutex()); }
    gate->changed_.notify_all();
  }
}

/// Of a peer that is gone, also what the members were at: step, instruction, partners.
std::exception_ptr Crew::told_whole(std::exception_ptr why) {
  const RunFailure failure = as_run_failure(why);
  if (failure.kind() != RunFailure::Kind::peer_lost) return why;
  return std::make_exception_ptr(RunFailure(failure.kind(), failure.what() + whereabouts()));
}

void Crew::stop(RunFailure::Kind kind, const std::string& why) {
  fail(std::make_exception_ptr(RunFailure(kind, why)));
}

RunFailure Crew::failure() const {
  const std::lock_guard lock(mutex_);
  EXPECTS(failure_ != nullptr, "a crew that goes on has not failed");
  return as_run_failure(failure_);
}

void Crew::hang(const std::string& what) {
  std::string all;
  {
    const std::lock_guard lock(mutex_);
    if (this_member >= 0) {
      Member& self = *std::next(members_.begin(), this_member);
      self.waiting = nullptr;  // `what` says it
      all = " of " + self.name;
    }
    all += what + whereabouts();
  }
  stop(RunFailure::Kind::hang, "no progress within the deadline" + all);
}

void Crew::rethrow() {
  std::exception_ptr why;
  {
    const std::lock_guard lock(mutex_);
    why = failure_;
  }
  std::rethrow_exception(why);
}

void Crew::doing(const std::string& what) {
  EXPECTS(this_member >= 0, "only members of a crew do something");
  const std::lock_guard lock(mutex_);
  std::next(members_.begin(), this_member)->at = what;
}

std::string Crew::whereabouts() {
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

/// Under the lock. Nobody ready and somebody left: they wait for each other.
void Crew::pass_on() {
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
    turn_ = ready.at(choose_(ready));
    std::next(members_.begin(), turn_)->turn.notify_all();
  } else if (anybody && !failure_) {
    failure_ = std::make_exception_ptr(
        RunFailure(RunFailure::Kind::hang, "nobody can go on:" + whereabouts()));
    stopping_ = true;
    for (Member& member : members_) member.turn.notify_all();
  }
}

bool Crew::wait_directed(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready,
                         const std::function<std::string()>& waiting) {
  if (failure_) return false;
  const int number = this_member;
  Member& self = *std::next(members_.begin(), number);
  self.ready = &ready;
  self.waiting = &waiting;
  pass_on();
  self.turn.wait(lock, [&] { return turn_ == number || failure_; });
  self.ready = nullptr;
  self.waiting = nullptr;
  return failure_ == nullptr;
}

/// What a member waits for, for others to tell, as long as this is there.
class Crew::Shown {
 public:
  explicit Shown(Crew& crew) : crew_(crew) {}
  ~Shown() {
    if (shown_) show(nullptr);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  void show(const std::function<std::string()>* waiting) {
    shown_ = true;
    if (this_member < 0) return;
    const std::lock_guard lock(crew_.mutex_);
    std::next(crew_.members_.begin(), this_member)->waiting = waiting;
  }
  [[nodiscard]] bool shown() const { return shown_; }

 private:
  Crew& crew_;
  bool shown_ = false;
};

void Crew::poll(const std::function<bool()>& ready, const std::function<std::string()>& waiting) {
  EXPECTS(!directed(), "a directed crew waits at gates only");
  const auto start = std::chrono::steady_clock::now();
  Shown shown(*this);
  while (!ready()) {
    if (stopping()) rethrow();
    const auto waited = std::chrono::steady_clock::now() - start;
    if (deadline_ && waited > std::chrono::duration<double>(deadline_->in(kSecond))) {
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

Gate::Gate(Crew& crew) : crew_(crew) {
  const std::lock_guard lock(crew_.gates_mutex_);
  place_ = crew_.gates_.insert(crew_.gates_.end(), this);
}

Gate::~Gate() {
  const std::lock_guard lock(crew_.gates_mutex_);
  crew_.gates_.erase(place_);
}

void Gate::wake() {
  changes_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
}

/// Under the lock, which is free while nothing changes. Returns when ready, or tired, or the crew
/// ends.
void Gate::spin(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) {
  if (ready()) return;
  if (spins_in_vain_ >= kTries && ++spins_in_vain_ % kTryAgain != 0) return;
  const auto until = std::chrono::steady_clock::now() + kAwake;
  std::uint32_t seen = changes_.load(std::memory_order_acquire);
  while (!ready() && !crew_.stopping()) {
    lock.unlock();
    for (int i = 1; changes_.load(std::memory_order_acquire) == seen && !crew_.stopping(); ++i) {
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

void Gate::await(const std::function<bool()>& ready, const std::function<std::string()>& waiting) {
  std::unique_lock lock(mutex());
  if (crew_.directed()) {
    const bool turn = crew_.wait_directed(lock, ready, waiting);
    lock.unlock();
    if (!turn) crew_.rethrow();
    return;
  }
  if (crew_.spins_) spin(lock, ready);
  const auto over = [&] { return ready() || crew_.stopping(); };
  if (!crew_.deadline_) {
    changed_.wait(lock, over);
  } else if (!changed_.wait_for(lock, std::chrono::duration<double>(crew_.deadline_->in(kSecond)),
                                over)) {
    const std::string what = in_words(waiting);
    lock.unlock();
    crew_.hang(what);
  }
  if (lock.owns_lock()) lock.unlock();
  if (crew_.stopping()) crew_.rethrow();
}

void Gate::await_even_at_the_end(const std::function<bool()>& ready) {
  std::unique_lock lock(mutex());
  if (crew_.directed()) {
    if (crew_.wait_directed(lock, ready, {})) return;
  } else if (crew_.spins_) {
    spin(lock, ready);
  }
  changed_.wait(lock, ready);
}

}  // namespace echelon
