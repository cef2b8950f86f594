// Executor: runs the instruction list of a plan, step after step, on the ranks of this process.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/process_grid.hpp"
#include "runtime/executor/buffer_hazard_checker.hpp"
#include "runtime/executor/device.hpp"
#include "runtime/executor/measured.hpp"
#include "runtime/executor/record.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

/// Report of a rank at the end of its step.
struct StepEnd {
  int rank = 0;
  int pipeline_rank = 0;
  std::int64_t step = 0;
  const StepTimes* times = nullptr;  ///< null where the step was not measured
  const Record& record;              ///< of the step issued last
  bool next_issued = false;          ///< the next step runs already
};

struct ExecutorOptions {
  std::vector<int> local;                           ///< global ranks of this process; none: all
  std::function<bool(std::int64_t step)> measured;  ///< none: no step
  std::int64_t first_step = 0;                      ///< number of the first step in messages
  bool in_order = false;  ///< one thread per rank issues for all queues, in the program's order
  /// in_order: whether the end of a step is awaited before the next one is issued, the same for all
  /// ranks; of other steps it is awaited when the next one has been issued, so that the device does
  /// not wait for the host. The last step is awaited. None: all are.
  std::function<bool(std::int64_t step)> awaited{};
  /// Called once per rank and step by one of its threads, while none of its queues runs;
  /// concurrently for different ranks. False: this was the last step; all ranks of all processes
  /// must agree on that for the same step; if the next one runs already (StepEnd::next_issued), it
  /// is the last. An exception ends the run. None: one step.
  std::function<bool(const StepEnd&)> on_step_end;
};

/// One thread per rank and queue that is not empty: it runs the instructions of its queue in order,
/// each when those it waits for are complete. (Or one per rank for devices with queues of their
/// own: the program's order agrees with the global order of all communications, so threads that
/// block in one after the other always meet.) Ranks that differ only in tp, cp or dp run the same
/// program. The next step of a rank begins when all its queues have ended; ranks wait for each
/// other only in the communications of the list.
///
/// The schedule must pass check_schedule. Every instruction goes through the rank's
/// BufferHazardChecker and Record; exceptions of a device are prefixed with rank and instruction.
class Executor {
 public:
  Executor(RunThreads& run_threads, const Schedule& schedule, const ProcessGrid& grid,
           Device& device, ExecutorOptions options = {});
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Adds the threads; run_threads.run() starts them.
  void add_threads();

 private:
  /// One queue of one program.
  struct QueueProgram {
    struct Wait {
      std::uint32_t id = 0;
      std::size_t queue = 0;
      std::uint32_t count = 0;  ///< instructions done on that queue by then
    };
    std::vector<std::uint32_t> ids;
    std::vector<std::vector<Wait>> waits;  ///< as ids
  };
  /// A program, prepared once for all ranks that run it.
  struct Prepared {
    Prepared(const Schedule& schedule, int pipeline_rank);
    const Program& program;
    BufferHazardRules rules;
    std::vector<std::string> names;  ///< "#17 send_f c0 m3"
    std::array<QueueProgram, kQueues> queue_programs;
    int used_queues = 0;
  };
  struct QueueState {
    explicit QueueState(RunThreads& run_threads) : monitor(run_threads) {}
    Monitor monitor;
    std::atomic<std::uint32_t> done{0};  ///< instructions of this step
  };
  struct Rank {
    Rank(RunThreads& run_threads, const Prepared& what, int global, int pipeline);
    const Prepared& prepared;
    const int global;
    BufferHazardChecker hazard_checker;
    Record record;
    struct Measured {
      StepTimes times;
      bool timed = false;
    };
    std::array<Measured, 2> measured;  ///< of a step and the one before, by their numbers' parity
    std::vector<std::uint32_t> order;  ///< in_order: ids
    std::deque<QueueState> queues;
    Monitor over;
    // Guarded by over.
    int ended = 0;
    std::int64_t step = 0;
    bool last = false;
  };

  void run_rank_queue(Rank& rank, Queue queue);
  void run_queue(Rank& rank, Queue queue, std::int64_t step);
  void run_in_order(Rank& rank, std::int64_t step);
  void wait(Rank& rank, const std::vector<QueueProgram::Wait>& waits, const std::string& at);
  void execute(Rank& rank, const Instruction& i, std::int64_t step);
  void carry_out(Rank& rank, const Instruction& i, Work& work);
  void run_steps_in_order(Rank& rank);
  bool end_step_on_queue(Rank& rank, std::int64_t step);
  void close_step(Rank& rank, std::int64_t step);
  [[nodiscard]] bool end_step(Rank& rank, std::int64_t step, bool next_issued);
  [[nodiscard]] static Rank::Measured& measured(Rank& rank, std::int64_t step) {
    return rank.measured[static_cast<std::size_t>(step % 2)];
  }
  void begin_step(Rank& rank, std::int64_t step);

  RunThreads& run_threads_;
  const Schedule& schedule_;
  Device& device_;
  ExecutorOptions options_;
  std::vector<std::unique_ptr<Prepared>> prepared_;  ///< by pipeline rank; null: not here
  std::deque<Rank> ranks_;
};

}  // namespace echelon
