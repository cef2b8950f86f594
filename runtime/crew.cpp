#include "runtime/crew.hpp"

#include <chrono>

#include "core/expects.hpp"

namespace echelon {
namespace {

/// Number of the calling thread in its crew; -1 for threads of no crew.
thread_local int this_member = -1;

}  // namespace

void Crew::add(std::string name, std::function<void()> work) {
  Member& member = members_.emplace_back();
  member.name = std::move(name);
  member.work = std::move(work);
  member.ready = nullptr;
}

void Crew::run() {
  std::vector<std::jthread> threads;
  threads.reserve(members_.size());
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
  std::vector<Gate*> gates;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(why);
    for (Member& member : members_) member.turn.notify_all();
    gates.assign(gates_.begin(), gates_.end());
  }
  for (Gate* gate : gates) {
    // Taking the lock once makes sure that nobody is between looking and sleeping.
    { const std::lock_guard lock(gate->mutex()); }
    gate->changed_.notify_all();
  }
}

void Crew::stop(RunFailure::Kind kind, const std::string& why) {
  fail(std::make_exception_ptr(RunFailure(kind, why)));
}

bool Crew::stopping() const {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

void Crew::doing(const std::string& what) {
  EXPECTS(this_member >= 0, "only members of a crew do something");
  const std::lock_guard lock(mutex_);
  std::next(members_.begin(), this_member)->at = what;
}

std::string Crew::whereabouts() {
  std::string text;
  for (const Member& member : members_) {
    if (!member.over) text += "\n  " + member.name + ": " + (member.at.empty() ? "-" : member.at);
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
    for (Member& member : members_) member.turn.notify_all();
  }
}

void Crew::wait_directed(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) {
  const int number = this_member;
  Member& self = *std::next(members_.begin(), number);
  self.ready = &ready;
  pass_on();
  self.turn.wait(lock, [&] { return turn_ == number || failure_; });
  self.ready = nullptr;
  if (failure_) std::rethrow_exception(failure_);
}

Gate::Gate(Crew& crew) : crew_(crew) {
  const std::lock_guard lock(crew_.mutex_);
  place_ = crew_.gates_.insert(crew_.gates_.end(), this);
}

Gate::~Gate() {
  const std::lock_guard lock(crew_.mutex_);
  crew_.gates_.erase(place_);
}

void Gate::await(const std::function<bool()>& ready) {
  std::unique_lock lock(mutex());
  if (crew_.directed()) return crew_.wait_directed(lock, ready);
  const auto over = [&] { return ready() || crew_.stopping(); };
  if (!crew_.deadline_) {
    changed_.wait(lock, over);
  } else if (!changed_.wait_for(lock, std::chrono::duration<double>(crew_.deadline_->in(kSecond)),
                                over)) {
    lock.unlock();
    std::string all;
    {
      const std::lock_guard crew_lock(crew_.mutex_);
      all = crew_.whereabouts();
    }
    crew_.stop(RunFailure::Kind::hang, "no progress within the deadline:" + all);
    lock.lock();
  }
  if (crew_.stopping()) {
    lock.unlock();
    const std::lock_guard crew_lock(crew_.mutex_);
    std::rethrow_exception(crew_.failure_);
  }
}

}  // namespace echelon
