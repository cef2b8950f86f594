#include "tests/runtime/cuda/standins/machine.hpp"

#include <algorithm>
#include <thread>

#include "tests/runtime/cuda/standins/allocations.hpp"
#include "tests/runtime/cuda/standins/communicators.hpp"
#include "tests/runtime/cuda/standins/graphs.hpp"
#include "tests/runtime/cuda/standins/products.hpp"

namespace echelon::standins {

Machine& machine() {
  static Machine one;
  return one;
}

HostThread& this_thread() {
  thread_local HostThread mine;
  if (mine.machine != machine().number()) mine = {.machine = machine().number()};
  return mine;
}

cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess) this_thread().last_error = error;
  return error;
}

std::string said(const CUstream_st& stream) {
  return "stream " + std::to_string(stream.number) + " of device " + std::to_string(stream.device);
}

Operation plain(const std::string& what, std::function<void()> run,
                std::function<std::string()> waits_for) {
  return {what,
          [part = Part{what, std::move(run), std::move(waits_for), {}, nullptr, false, false}] {
            return Parts{std::make_shared<Part>(part)};
          }};
}

Machine::Lock::Lock() {
  ++machine().wanting_;
  held = std::unique_lock(machine().mutex_);
  --machine().wanting_;
}

/// A mutex is not fair: without this, threads that run steps would starve those that add new ones.
void Machine::breathe(Lock& lock) {
  if (wanting_ == 0) return;
  lock.held.unlock();
  std::this_thread::yield();
  lock.held.lock();
}

void Machine::start(const Settings& settings) {
  settings_ = settings;
  draws_ = Numbers(settings.seed);
  ++number_;
  streams_.clear();
  events_.clear();
  owned_.clear();
  loaded.clear();
  launches = products = streams_of_resources = connected_peers = suggestions = 0;
  ahead = {};
  graph_bytes.clear();
  broken = false;
  streams_made_ = events_made_ = 0;
  fault_ = nullptr;
}

CUstream_st* Machine::new_stream(unsigned flags, int priority) {
  auto stream = std::make_unique<CUstream_st>();
  stream->number = ++streams_made_;
  ++taken_;
  stream->device = this_thread().device;
  stream->flags = flags;
  stream->priority = priority;
  return streams_.emplace_back(std::move(stream)).get();
}

CUevent_st* Machine::new_event(unsigned flags) {
  auto event = std::make_unique<CUevent_st>();
  event->number = ++events_made_;
  ++taken_;
  event->device = this_thread().device;
  event->flags = flags;
  return events_.emplace_back(std::move(event)).get();
}

/// The work in it is still executed.
void Machine::remove(CUstream_st* stream) {
  stream->destroyed = true;
  std::erase_if(streams_, [](const auto& s) { return s->destroyed && s->queue.empty(); });
}

void Machine::remove(CUevent_st* event) {
  std::erase_if(events_, [&](const auto& e) { return e.get() == event; });
}

bool Machine::knows(const CUstream_st* stream) const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [&](const auto& s) { return s.get() == stream && !s->destroyed; });
}

bool Machine::knows(const CUevent_st* event) const {
  return std::any_of(events_.begin(), events_.end(),
                     [&](const auto& e) { return e.get() == event; });
}

void Machine::check(const CUstream_st* stream) {
  if (stream == nullptr) complain("only kernels are emulated on the null stream");
  if (!knows(stream)) complain("a stream is used that is not there, or no longer");
}

void Machine::check(const CUevent_st* event) {
  if (!knows(event)) complain("an event is used that is not there, or no longer");
}

bool Machine::disown(const void* handle, const std::string& what) {
  if (owned_.erase({handle, what}) > 0) return true;
  blame("no " + what + " that could be destroyed", cudaErrorInvalidResourceHandle);
  return false;
}
bool Machine::owns(const void* handle, const std::string& what) const {
  return owned_.count({handle, what}) > 0;
}

std::string Machine::left() const {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  for (const auto& stream : streams_) {
    if (!stream->destroyed) add(said(*stream));
    if (!stream->queue.empty()) add("work in " + said(*stream));
  }
  for (const auto& event : events_) add("event " + std::to_string(event->number));
  for (const auto& [key, handle] : owned_) add(key.second);
  return text;
}

void Machine::enqueue(CUstream_st* stream, const Operation& operation) {
  if (stream->capture) {
    record(*stream, operation);
    return;
  }
  if (stream->queue.size() >= settings_.stream_holds) {
    complain(said(*stream) + " holds " + std::to_string(stream->queue.size()) +
             " operations: the driver would hold the thread that brings " + operation.what);
  }
  enqueue(stream, operation.make());
}

void Machine::enqueue(CUstream_st* stream, Parts parts, std::shared_ptr<bool> over) {
  auto entry = std::make_shared<Entry>();
  entry->stream = stream;
  entry->parts = std::move(parts);
  entry->over = std::move(over);
  for (const auto& part : entry->parts) part->entry = entry.get();
  if (entry->parts.empty()) return;
  stream->queue.push_back(std::move(entry));
  changed();
  if (settings_.order == Order::eager && !fault_) {
    while (step()) {
    }
  }
}

void Machine::changed() {
  ++changes_;
  changed_.notify_all();
}

bool Machine::reached(const Part& part) const {
  const Entry& entry = *part.entry;
  return !entry.stream->queue.empty() && entry.stream->queue.front().get() == &entry &&
         std::all_of(part.after.begin(), part.after.end(), [](const Part* p) { return p->done; });
}

bool Machine::communicates(int device, const std::string& kind) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& stream) {
    if (stream->device != device || stream->queue.empty()) return false;
    const Parts& parts = stream->queue.front()->parts;
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
      return part->communicates && !part->done && part->what.rfind(kind, 0) == 0;
    });
  });
}

std::string Machine::waits_for(const Part& part) const {
  for (const Part* before : part.after) {
    if (!before->done) return before->what;
  }
  return part.waits_for ? part.waits_for() : "";
}

const std::shared_ptr<Part>& Machine::pick(const std::vector<const std::shared_ptr<Part>*>& able) {
  const auto stream_of = [](const auto* part) { return (*part)->entry->stream->number; };
  if (settings_.order == Order::newest_first) {
    return **std::max_element(able.begin(), able.end(), [&](const auto* a, const auto* b) {
      return stream_of(a) < stream_of(b);
    });
  }
  if (settings_.order == Order::starve_one) {
    const int victim = 1 + static_cast<int>(settings_.seed % static_cast<unsigned>(streams_made_));
    std::vector<const std::shared_ptr<Part>*> others;
    for (const auto* part : able) {
      if (stream_of(part) != victim) others.push_back(part);
    }
    if (!others.empty()) return *others[draws_.below(others.size())];
  }
  return *able[draws_.below(able.size())];
}

/// False: no operation can proceed.
bool Machine::step() {
  std::vector<const std::shared_ptr<Part>*> able;
  for (const auto& stream : streams_) {
    if (stream->queue.empty()) continue;
    for (const auto& part : stream->queue.front()->parts) {
      if (!part->done && waits_for(*part).empty()) able.push_back(&part);
    }
  }
  if (able.empty()) return false;
  const std::shared_ptr<Part> part = pick(able);
  try {
    part->run();
  } catch (...) {
    note_fault(std::current_exception());
    this_thread().reported = true;
    throw;
  }
  part->done = true;
  CUstream_st& stream = *part->entry->stream;
  const Parts& all = part->entry->parts;
  if (std::all_of(all.begin(), all.end(), [](const auto& p) { return p->done; })) {
    *part->entry->over = true;
    stream.queue.pop_front();
    if (stream.destroyed) remove(&stream);
  }
  changed();
  return true;
}

/// Only the first one counts.
void Machine::note_fault(std::exception_ptr fault) {
  if (!fault_) fault_ = std::move(fault);
  changed();
}

void Machine::complain(const std::string& what) {
  const emulation::Fault fault(what);
  note_fault(std::make_exception_ptr(fault));
  this_thread().reported = true;
  throw fault;
}

cudaError_t Machine::blame(const std::string& what, cudaError_t error) {
  note_fault(std::make_exception_ptr(emulation::Fault(what)));
  return failed(error);
}

cudaError_t Machine::throw_fault(bool quiet) {
  if (broken) return failed(cudaErrorECCUncorrectable);
  if (!fault_) return cudaSuccess;
  if (!quiet && !this_thread().reported && std::uncaught_exceptions() == 0) {
    this_thread().reported = true;
    std::rethrow_exception(fault_);
  }
  return failed(cudaErrorLaunchFailure);
}

std::string Machine::stuck() const {
  std::string text;
  for (const auto& stream : streams_) {
    if (stream->queue.empty()) continue;
    for (const auto& part : stream->queue.front()->parts) {
      if (part->done || !reached(*part)) continue;
      text += "\n  " + said(*stream) + ": " + part->what + " waits for " + waits_for(*part);
    }
  }
  return text.empty() ? "\n  every stream is empty" : text;
}

cudaError_t Machine::wait(Lock& lock, const std::function<bool()>& over,
                          const std::function<std::string()>& who, bool quiet) {
  using Clock = std::chrono::steady_clock;
  auto since = Clock::now();
  if (!quiet) ++waits_;
  // Other processes wake nobody.
  constexpr auto kLook = std::chrono::milliseconds(1);
  std::uint64_t seen = changes_ + elsewhere_;
  try {
    for (;;) {
      if (const cudaError_t error = throw_fault(quiet); error != cudaSuccess) return error;
      if (over()) return cudaSuccess;
      if (step()) {
        breathe(lock);
        continue;
      }
      if (changes_ + elsewhere_ != seen) {
        seen = changes_ + elsewhere_;
        since = Clock::now();
      }
      const auto until = since + settings_.limit;
      if (Clock::now() >= until) {
        complain(who() + " waited " + std::to_string(settings_.limit.count()) +
                 " ms, and nothing goes on:" + stuck());
      }
      changed_.wait_until(lock.held, std::min(until, Clock::now() + kLook));
    }
  } catch (...) {
    if (!quiet) throw;
    return failed(cudaErrorLaunchFailure);
  }
}

void Machine::run_some(Lock& lock) {
  for (int i = draws_.upto(2); i > 0; --i) {
    if (!step()) return;
    breathe(lock);
  }
}

void Machine::run_by_itself(std::uint64_t (*exchange)(std::uint64_t own)) {
  if (own_thread_.joinable()) return;
  own_thread_ = std::jthread([this, exchange](const std::stop_token& end) { live(end, exchange); });
  // Before anything of the old machine is destroyed.
  struct AtExit {
    ~AtExit() { machine().stand_still(); }
  };
  static const AtExit at_exit;
}

void Machine::stand_still() {
  own_thread_.request_stop();
  if (own_thread_.joinable()) own_thread_.join();
}

/// The thread's body. Waiting threads report a fault.
void Machine::live(const std::stop_token& end, std::uint64_t (*exchange)(std::uint64_t own)) {
  constexpr auto kIdle = std::chrono::microseconds(200);
  while (!end.stop_requested()) {
    bool went_on = false;
    {
      const Lock lock;
      elsewhere_ = exchange(changes_);
      try {
        went_on = !fault_ && step();
      } catch (...) {
      }
    }
    if (went_on) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kIdle);
    }
  }
}

void start(const Settings& settings) {
  machine().stand_still();
  const Machine::Lock lock;
  machine().start(settings);
  allocations().clear();
  forget_communicators();
  forget_products();
}

Counts counts() {
  const Machine::Lock lock;
  Counts all = machine().of_process;
  all.taken = machine().taken() + allocations().made();
  all.waits = machine().waits();
  return all;
}

int streams_of_resources() {
  const Machine::Lock lock;
  return machine().streams_of_resources;
}

int connected_peers() {
  const Machine::Lock lock;
  return machine().connected_peers;
}

void check_nothing_left() {
  const Machine::Lock lock;
  if (machine().fault()) std::rethrow_exception(machine().fault());
  std::string left = machine().left();
  const std::string memory = allocations().left();
  if (!memory.empty()) left += (left.empty() ? "" : "; ") + memory;
  if (!left.empty()) machine().complain("left: " + left);
}

}  // namespace echelon::standins
