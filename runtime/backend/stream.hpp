// Stream: one queue of one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/schedule/schedule.hpp"
#include "runtime/executor/device.hpp"

namespace echelon {

/// The stream of the collectives that run beside the kernels of a queue, where the device has one.
class SideStream {
 public:
  using Mark = int;
  virtual ~SideStream() = default;
  /// Collectives called from here on wait for the work that the queue has until now.
  virtual void fork() = 0;
  /// A place behind the collectives called until now. At most kOpenMarks are to be joined.
  [[nodiscard]] virtual Mark mark() = 0;
  /// Work enqueued on the queue from here on waits for the collectives before the mark.
  virtual void join(Mark mark) = 0;
  static constexpr int kOpenMarks = 4;
};

/// Work runs in the order of the calls: immediately if the calling thread executes it (CPUs), later
/// if the device has queues of its own (a CUDA stream). Used by one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Work enqueued from here to `end` belongs to `i` and waits for the instructions in `i.after`.
  virtual void begin(const Instruction& i) = 0;
  /// Known sub-spans of the instruction's time; a device with queues of its own reports them later
  /// (Processor::end_step).
  virtual WithinTimes end(const Instruction& i) = 0;
  /// Work enqueued from here on waits for an instruction of this step whose `end` was called.
  virtual void wait(const Instruction& i) = 0;
  /// Marks are numbered, and last from step to step. Work enqueued here from `wait_for_mark` on
  /// waits for what was enqueued before the latest `set_mark` of that number, on any queue of the
  /// rank; for nothing if there was none.
  virtual void set_mark(std::size_t mark) = 0;
  virtual void wait_for_mark(std::size_t mark) = 0;
  /// The time from start to stop counts as `part`, except for nested parts.
  virtual void start(Within part) = 0;
  virtual void stop() = 0;
  /// The calling thread waited for other ranks for `time`: a `part` of the instruction's time, or
  /// without one a share of the communication that was started last. With queues of a device's own
  /// the thread does not wait.
  virtual void waited(std::optional<Within> /*part*/, Seconds /*time*/) {}

  /// Null: the calling thread executes collectives when they are called.
  [[nodiscard]] virtual SideStream* side() = 0;

  /// Copies from host memory, which may be reused when the call returns.
  virtual void upload(const void* from, void* to, std::int64_t bytes) = 0;
  /// Copies to host memory: waits for the work that the queue has until now.
  virtual void download(const void* from, void* to, std::int64_t bytes) = 0;
  /// Sets the bytes to zero.
  virtual void clear(void* block, std::int64_t bytes) = 0;
};

/// A sub-span that lasts for a scope.
class ScopedSubSpan {
 public:
  ScopedSubSpan(Stream& on, Within part) : on_(on) { on_.start(part); }
  ~ScopedSubSpan() { on_.stop(); }
  ScopedSubSpan(const ScopedSubSpan&) = delete;
  ScopedSubSpan& operator=(const ScopedSubSpan&) = delete;

 private:
  Stream& on_;
};

}  // namespace echelon
