// Stream: one queue of one rank, as work is put on it.
#pragma once

#include <cstdint>

#include "core/schedule/schedule.hpp"
#include "runtime/executor/device.hpp"

namespace echelon {

/// What is put on it runs in the order of the calls: at once where the calling thread does it
/// (CPUs), later where a device has queues of its own (a CUDA stream). Used by one thread at a
/// time.
class Stream {
 public:
  virtual ~Stream() = default;

  /// What is put from here to `end` is the work of `i`, and waits for the instructions it comes
  /// after.
  virtual void begin(const Instruction& i) = 0;
  /// What part of the instruction's time was spent on, as far as it is known by now: a device with
  /// queues of its own tells later (Processor::end_step).
  virtual WithinTimes end(const Instruction& i) = 0;
  /// What is put from here on waits for an instruction of this step whose `end` was called.
  virtual void wait(const Instruction& i) = 0;
  /// From start to stop counts as `part`, but for parts in between. May be nested.
  virtual void start(Within part) = 0;
  virtual void stop() = 0;
  /// The calling thread has waited for `time` for other ranks: a `part` of the instruction's time,
  /// or Within::peers, a share of the part that was started last. Queues of a device's own do not
  /// wait with the thread.
  virtual void waited(Within /*part*/, Seconds /*time*/) {}

  /// From host memory, which is free again when the call returns.
  virtual void upload(const void* from, void* to, std::int64_t bytes) = 0;
  /// Zero bytes.
  virtual void clear(void* block, std::int64_t bytes) = 0;
};

/// From here to the end of its scope.
class Spending {
 public:
  Spending(Stream& on, Within part) : on_(on) { on_.start(part); }
  ~Spending() { on_.stop(); }
  Spending(const Spending&) = delete;
  Spending& operator=(const Spending&) = delete;

 private:
  Stream& on_;
};

}  // namespace echelon
