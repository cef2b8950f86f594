// Processor and Backend: the compute devices of this process's ranks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "runtime/backend/kernels.hpp"
#include "runtime/backend/memory.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/executor/measured.hpp"

namespace echelon {

struct ChunkSpec;  // runtime/model/parameters.hpp

/// The device of one rank: its memory and queues, on a CPU or a GPU.
template <class T>
class Processor : public MemorySource {
 public:
  /// The queue, for the calling thread.
  [[nodiscard]] virtual Kernels<T>& on(Queue queue) = 0;
  /// Called once before the first step: allocates from `memory` what kernels need for these chunks
  /// besides the caller's buffers.
  virtual void prepare(std::span<const ChunkSpec> chunks, Memory& memory) = 0;

  /// Called by one thread while no instruction is being enqueued. Work of the step waits for that
  /// of the one before, except for gather_updated: of those, what Stream::wait_for_mark says. At
  /// most two steps are begun and not ended. `repeatable`: this step issues the same forward and
  /// backward work as the last repeatable step.
  virtual void begin_step(const Program& program, bool timed, bool repeatable) = 0;
  /// The step is enqueued. When its work is over, except for gather_updated, `bytes` of `result`
  /// (at most kResultBytes) are kept for end_step.
  virtual void close_step(const void* result, std::int64_t bytes) = 0;
  /// Waits until all work of the first step that has not ended is complete, and copies its result
  /// to `into`. If the device has queues of its own, `times` (null: the step was not measured)
  /// receives when instructions ran.
  virtual void end_step(StepTimes* times, void* into) = 0;
  static constexpr std::int64_t kResultBytes = 64;

  /// After the last step: adds memory of the device that nothing has counted to the account of
  /// prepare(), as context. Nothing where ranks share the device.
  virtual void count_rest() {}

  /// Whether the host can access the memory directly. Otherwise, while no step is begun and not
  /// ended:
  [[nodiscard]] virtual bool in_host_memory() const = 0;
  virtual void read(const void* from, void* host, std::int64_t bytes) = 0;
  virtual void write(const void* host, void* to, std::int64_t bytes) = 0;
};

/// All ranks of this process and their communicators.
template <class T>
class Backend {
 public:
  virtual ~Backend() = default;
  /// The devices have queues of their own: one thread per rank enqueues all its work, in the
  /// program's order.
  [[nodiscard]] virtual bool issues_in_order() const = 0;
  /// Communicators take memory of the rank's processor and are enqueued on its queues; those of
  /// GroupRole::control take host memory and block.
  [[nodiscard]] virtual World& world() = 0;
  /// Communicators of the same groups that take host memory and block.
  [[nodiscard]] virtual World& host_world() = 0;
  [[nodiscard]] virtual Processor<T>& at(int rank) = 0;
  /// The run failed and pending work on queues will never complete. Called before anything is
  /// freed.
  virtual void give_up() {}
  /// For the report: devices, libraries.
  [[nodiscard]] virtual std::map<std::string, std::string> environment() const = 0;
};

}  // namespace echelon
