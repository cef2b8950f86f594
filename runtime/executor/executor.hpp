// Executor: runs the instruction list of a plan, step after step, on the ranks of this process.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/process_grid.hpp"
#include "runtime/crew.hpp"
#include "runtime/executor/device.hpp"
#include "runtime/executor/ledger.hpp"
#include "runtime/executor/measured.hpp"
#include "runtime/executor/record.hpp"

namespace echelon {

/// What a rank tells when its step is over.
struct StepOver {
  int rank = 0;
  int pipeline_rank = 0;
  std::int64_t step = 0;
  const StepTimes* times = nullptr;  ///< null where the step was not measured
  const Record& record;
};

struct ExecutorOptions {
  std::vector<int> local;                           ///< global ranks of this process; none: all
  std::function<bool(std::int64_t step)> measured;  ///< none: no step
  std::int64_t first_step = 0;                      ///< what messages call the first one
  bool in_order = false;  ///< one member per rank calls for all queues, in the program's order
  /// Called once per rank and step by one of its threads, while none of its queues runs; ranks call
  /// at the same time. False: the step was the last, an answer that all ranks of all processes must
  /// give for the same step. What it throws ends the run. None: one step.
  std::function<bool(const StepOver&)> step_over;
};

/// One member of the crew per rank and queue that is not empty: runs the instructions of its queue
/// in order, each when those it waits for are over. (Or one per rank for devices with queues of
/// their own: the program's order agrees with the one order of all communications, so that members
/// that block in one after the other meet.) Ranks that differ only in tp, cp or dp run the
/// same program. The next step of a rank begins when all its queues have ended; ranks do not wait
/// for each other but in the communications of the list.
///
/// The schedule is one that check_schedule accepts. Every instruction goes through the rank's
/// ledger and record; what a device throws comes with rank and instruction in front.
class Executor {
 public:
  Executor(Crew& crew, const Schedule& schedule, const ProcessGrid& grid, Device& device,
           ExecutorOptions options = {});
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Adds the members; the run itself is crew.run().
  void enlist();

 private:
  /// One queue of one program.
  struct Line {
    struct Wait {
      std::uint32_t id = 0;
      std::size_t queue = 0;
      std::uint32_t count = 0;  ///< done on that queue when it is over
    };
    std::vector<std::uint32_t> ids;
    std::vector<std::vector<Wait>> waits;  ///< as ids
  };
  /// A program, prepared once for all ranks that run it.
  struct Prepared {
    Prepared(const Schedule& schedule, int pipeline_rank);
    const Program& program;
    LedgerRules rules;
    std::vector<std::string> names;  ///< "#17 send_f c0 m3"
    std::array<Line, kQueues> lines;
    int used_lines = 0;
  };
  struct QueueState {
    explicit QueueState(Crew& crew) : gate(crew) {}
    Gate gate;
    std::atomic<std::uint32_t> done{0};  ///< instructions of this step
  };
  struct Rank {
    Rank(Crew& crew, const Prepared& what, int global, int pipeline);
    const Prepared& prepared;
    Ledger ledger;
    Record record;
    StepTimes times;
    std::vector<std::uint32_t> order;  ///< in_order: ids
    bool timed = false;
    std::deque<QueueState> queues;
    Gate over;
    // Guarded by over.
    int ended = 0;
    std::int64_t step = 0;
    bool last = false;
  };

  void live(Rank& rank, Queue queue);
  void run_queue(Rank& rank, Queue queue, std::int64_t step);
  void run_in_order(Rank& rank, std::int64_t step);
  void wait(Rank& rank, const std::vector<Line::Wait>& waits, const std::string& at);
  void execute(Rank& rank, const Instruction& i, std::int64_t step);
  void carry_out(Rank& rank, const Instruction& i, Work& work);
  bool end_step(Rank& rank, std::int64_t step);
  void begin_step(Rank& rank, std::int64_t step);

  Crew& crew_;
  const Schedule& schedule_;
  Device& device_;
  ExecutorOptions options_;
  std::vector<std::unique_ptr<Prepared>> prepared_;  ///< by pipeline rank; null: not here
  std::deque<Rank> ranks_;
};

}  // namespace echelon
