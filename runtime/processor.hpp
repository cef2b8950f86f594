// Processor and Backend: what the ranks of this process compute with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "runtime/executor/measured.hpp"
#include "runtime/kernels.hpp"
#include "runtime/model/chunk_layout.hpp"
#include "runtime/training/memory.hpp"
#include "runtime/world.hpp"

namespace echelon {

/// What one rank computes with: memory and queues of its own, of a CPU or a GPU.
template <class T>
class Processor : public MemorySource {
 public:
  /// The queue, for the thread that calls.
  [[nodiscard]] virtual Kernels<T>& on(Queue queue) = 0;
  /// Once, before the first step: what kernels need beside the caller's memory for these chunks is
  /// taken from `memory`.
  virtual void prepare(std::span<const ChunkSpec> chunks, Memory& memory) = 0;

  /// The calling thread's, while no queue runs; what was put on queues before is over then.
  /// `alike`: forwards and backwards are as in the last step that was so.
  virtual void begin_step(const Program& program, bool timed, bool alike) = 0;
  /// The same: waits until everything put on the queues is over. Where the queues are the device's
  /// own, `times` (null: the step was not measured) learns when instructions ran.
  virtual void end_step(StepTimes* times) = 0;

  /// Whether the host can use the memory as it is. Otherwise, between steps:
  [[nodiscard]] virtual bool in_host_memory() const = 0;
  virtual void read(const void* from, void* host, std::int64_t bytes) = 0;
  virtual void write(const void* host, void* to, std::int64_t bytes) = 0;
};

/// All ranks of this process, and how they reach the others.
template <class T>
class Backend {
 public:
  virtual ~Backend() = default;
  /// Queues are the devices' own: one thread per rank puts all its work on them, in the program's
  /// order.
  [[nodiscard]] virtual bool issues_in_order() const = 0;
  /// Communicators take memory of the rank's processor and are put on its queues; those of
  /// Line::host take host memory and block.
  [[nodiscard]] virtual World& world() = 0;
  [[nodiscard]] virtual Processor<T>& at(int rank) = 0;
  /// The run failed: whatever queues still wait for will not come. Before anything is freed.
  virtual void give_up() {}
  /// For the report: devices, libraries.
  [[nodiscard]] virtual std::map<std::string, std::string> environment() const = 0;
};

}  // namespace echelon
