// The machine that the stand-ins emulate: streams are queues, and waiting host threads run their
// operations. Everything here is used under the machine's lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/runtime/cuda/standins/cuda_runtime_api.h"
#include "tests/runtime/cuda/standins/settings.hpp"
#include "tests/support/numbers.hpp"

namespace echelon::standins {

struct Entry;

/// A step that runs without interruption.
struct Part {
  std::string what;
  std::function<void()> run;
  /// The operation it waits for, "" if it waits for none; no function: never waits.
  std::function<std::string()> waits_for;
  std::vector<const Part*> after;  // of the same entry
  Entry* entry = nullptr;
  bool done = false;
  bool communicates = false;
};
using Parts = std::vector<std::shared_ptr<Part>>;

/// The operation that a call enqueues. A graph creates it anew at every launch.
struct Operation {
  std::string what;
  std::function<Parts()> make;
};
Operation plain(const std::string& what, std::function<void()> run,
                std::function<std::string()> waits_for = {});

/// One entry of a stream's queue: finished when all of its parts are.
struct Entry {
  Parts parts;
  CUstream_st* stream = nullptr;
  std::shared_ptr<bool> over;
};

struct Graph {
  struct Node {
    Operation operation;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<void>> retained;  // by user objects
};
struct Capture;

/// A call of cudaEventRecord.
struct Record {
  bool over = false;
  std::chrono::steady_clock::time_point when;
  std::string where;  // the stream
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> tips;  // of the capture: the nodes that the event represents
};

}  // namespace echelon::standins

struct CUstream_st {
  int number = 0;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool destroyed = false;
  std::deque<std::shared_ptr<echelon::standins::Entry>> queue;
  std::shared_ptr<echelon::standins::Capture> capture;
  std::vector<std::size_t> tips;  // of the capture: the predecessors of the next operation
};
struct CUevent_st {
  int number = 0;
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<echelon::standins::Record> latest;
};

namespace echelon::standins {

/// State of a host thread, reset with every new machine.
struct HostThread {
  std::uint64_t machine = 0;
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  bool reported =
      false;  // of the fault: it is thrown once in a thread, and is an error from then on
};
HostThread& this_thread();
/// Remembers it for cudaGetLastError().
cudaError_t failed(cudaError_t error);

class Machine {
 public:
  /// The lock of the machine, which other threads can take between steps.
  class Lock {
   public:
    Lock();
    std::unique_lock<std::mutex> held;
  };

  void start(const Settings& settings);
  /// Kernels on the devices, by device.
  std::set<std::pair<int, const void*>> loaded;
  int launches = 0;                        ///< of kernels on streams
  int products = 0;                        ///< that were enqueued
  std::chrono::duration<double> ahead{};   ///< of events' clock, by products that took a set time
  std::map<int, std::size_t> graph_bytes;  ///< of executable graphs, by device
  int connected_peers = 0;
  int suggestions = 0;
  int streams_of_resources = 0;  ///< most streams of communicators that share resources
  bool broken = false;           ///< by Settings::broken_product
  Counts of_process;             ///< counts of what is not counted elsewhere
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  Numbers& draws() { return draws_; }

  CUstream_st* new_stream(unsigned flags, int priority);
  CUevent_st* new_event(unsigned flags);
  void remove(CUstream_st* stream);
  void remove(CUevent_st* event);
  /// Reports an object that does not exist, or no longer.
  void check(const CUstream_st* stream);
  void check(const CUevent_st* event);
  [[nodiscard]] bool knows(const CUstream_st* stream) const;
  [[nodiscard]] bool knows(const CUevent_st* event) const;
  [[nodiscard]] const std::vector<std::unique_ptr<CUstream_st>>& streams() const {
    return streams_;
  }
  /// Any other object that must be freed.
  template <class T>
  T* own(std::shared_ptr<T> made, const std::string& what) {
    owned_[{made.get(), what}] = made;
    return made.get();
  }
  /// Reports the freeing of an object that does not exist.
  bool disown(const void* handle, const std::string& what);
  [[nodiscard]] bool owns(const void* handle, const std::string& what) const;
  [[nodiscard]] std::string left() const;
  /// Streams and events, and the waits of threads for them.
  [[nodiscard]] int taken() const { return taken_; }
  [[nodiscard]] int waits() const { return waits_; }

  /// On the stream's queue, or into the graph it is captured for.
  void enqueue(CUstream_st* stream, const Operation& operation);
  void enqueue(CUstream_st* stream, Parts parts,
               std::shared_ptr<bool> over = std::make_shared<bool>(false));
  /// Whether a stream of the device has come to a call of a communicator that is not over, of this
  /// kind ("": any).
  [[nodiscard]] bool communicates(int device, const std::string& kind = "") const;
  /// True: it is at the head of its stream, and what precedes it there is over.
  [[nodiscard]] bool reached(const Part& part) const;

  /// Runs ready operations until `over`. Throws the pending fault, or (unless `quiet`, for calls
  /// from destructors) reports that no operation can proceed; returns the status of a second call.
  cudaError_t wait(Lock& lock, const std::function<bool()>& over,
                   const std::function<std::string()>& who, bool quiet = false);
  /// Runs a few steps or none, for calls that poll and do not wait.
  void run_some(Lock& lock);
  void changed();
  /// From now on a thread of the machine runs ready operations, as GPUs do independently of the
  /// host: machines of other processes wait for it. `exchange` publishes its progress and returns
  /// the total progress of the others.
  void run_by_itself(std::uint64_t (*exchange)(std::uint64_t own));
  /// Until a new machine. Not under the lock.
  void stand_still();

  /// A fault of the machine: thrown here and by every waiting thread.
  [[noreturn]] void complain(const std::string& what);
  /// The same for calls from destructors, which throw nothing.
  cudaError_t blame(const std::string& what, cudaError_t error);
  cudaError_t throw_fault(bool quiet);
  [[nodiscard]] const std::exception_ptr& fault() const { return fault_; }

 private:
  friend class Lock;
  bool step();
  [[nodiscard]] std::string waits_for(const Part& part) const;
  [[nodiscard]] const std::shared_ptr<Part>& pick(
      const std::vector<const std::shared_ptr<Part>*>& able);
  [[nodiscard]] std::string stuck() const;
  void note_fault(std::exception_ptr fault);
  void breathe(Lock& lock);
  void live(const std::stop_token& end, std::uint64_t (*exchange)(std::uint64_t own));

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> wanting_ = 0;  // threads that want the lock
  std::atomic<std::uint64_t> number_ = 1;
  Settings settings_;
  Numbers draws_{1};
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
  std::map<std::pair<const void*, std::string>, std::shared_ptr<void>> owned_;
  int streams_made_ = 0;
  int events_made_ = 0;
  int taken_ = 0;
  int waits_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t elsewhere_ = 0;  // changes of other processes' machines
  std::exception_ptr fault_;
  std::jthread own_thread_;
};
Machine& machine();

std::string said(const CUstream_st& stream);

}  // namespace echelon::standins
