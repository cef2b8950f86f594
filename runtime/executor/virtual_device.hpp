// VirtualDevice: executes instructions in virtual time. What it shows is the executor's own work.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "core/plan/process_grid.hpp"
#include "runtime/crew.hpp"
#include "runtime/executor/device.hpp"

namespace echelon {

/// An instruction starts when its queue is free and all it waits for are over, in virtual time; the
/// ends of a communication start together, when the last is ready, and take the longest of their
/// times. The same rules as costmodel/schedule/simulator.hpp, and for one pipeline the same
/// numbers.
///
/// Members of a communication: the two ends of a message; the ranks that differ only in dp and cp
/// (gather, reduce, updated); all ranks (norm); first and last pipeline rank (tied).
class VirtualDevice : public Device {
 public:
  /// `rank` is global; called by the queues' threads, where it may also sleep.
  using Takes = std::function<Seconds(int rank, const Instruction&)>;
  using TakesWithin = std::function<WithinTimes(int rank, const Instruction&)>;

  /// All ranks of the grid must be in this process.
  VirtualDevice(Crew& crew, const Schedule& schedule, const ProcessGrid& grid, Takes takes,
                TakesWithin within = {});

  void execute(Work& work) override;
  void begin_step(int rank, std::int64_t step, bool timed) override;
  [[nodiscard]] Seconds now(int rank, Queue queue) const override;

 private:
  struct Clock {
    std::array<Seconds, kQueues> free{};  ///< each written by its queue's thread alone
    std::vector<Seconds> end;             ///< by id, of this step
  };
  struct Meeting {
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
  [[nodiscard]] Meeting meet(const Key& key, int members, Seconds ready, Seconds takes);

  const Schedule& schedule_;
  ProcessGrid grid_;
  Takes takes_;
  TakesWithin within_;
  std::vector<Clock> clocks_;
  Gate gate_;
  std::map<Key, Meeting> meetings_;  ///< guarded by gate_
};

}  // namespace echelon
