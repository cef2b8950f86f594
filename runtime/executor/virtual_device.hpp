// VirtualDevice: executes instructions in virtual time, which isolates the executor's own work.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "core/plan/process_grid.hpp"
#include "runtime/executor/device.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

/// An instruction starts when its queue is free and all its dependencies are complete, in virtual
/// time; the members of a communication start together, when the last is ready, and take the
/// longest of their times. These are the rules of costmodel/schedule/simulator.hpp, and for one
/// pipeline the results are the same.
///
/// Members of a communication: the two sides of a message; the ranks that differ only in dp and cp
/// (gather, reduce, updated); all ranks (norm); first and last pipeline rank (tied).
class VirtualDevice : public Device {
 public:
  /// `rank` is global; called by the queues' threads, where it may also sleep.
  using Takes = std::function<Seconds(int rank, const Instruction&)>;
  using TakesWithin = std::function<WithinTimes(int rank, const Instruction&)>;

  /// All ranks of the grid must be in this process.
  VirtualDevice(RunThreads& run_threads, const Schedule& schedule, const ProcessGrid& grid,
                Takes takes, TakesWithin within = {});

  void execute(Work& work) override;
  void begin_step(int rank, std::int64_t step, bool timed) override;
  [[nodiscard]] Seconds now(int rank, Queue queue) const override;

 private:
  struct Clock {
    std::array<Seconds, kQueues> free{};  ///< each written by its queue's thread alone
    std::vector<Seconds> end;             ///< by id, of this step
  };
  struct Communication {
    Seconds ready;
    Seconds takes;
    int arrived = 0;
    int left = 0;
  };
  using Key = std::tuple<std::int64_t, std::int32_t, int>;  // step, sequence, group
  struct Group {
    int number = 0;  ///< its lowest rank, so that groups of one communication differ
    int members = 1;
  };

  [[nodiscard]] Group group_of(int rank, Op op) const;
  [[nodiscard]] Communication join_communication(const Key& key, int members, Seconds ready,
                                                 Seconds takes);

  const Schedule& schedule_;
  ProcessGrid grid_;
  Takes takes_;
  TakesWithin within_;
  std::vector<Clock> clocks_;
  Monitor monitor_;
  std::map<Key, Communication> communications_;  ///< guarded by monitor_
};

}  // namespace echelon
