// RunCheckpoints: persistence of a run, between the ranks of its processes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/training/persistence.hpp"
#include "runtime/training/run_history.hpp"
#include "runtime/training/training_device.hpp"

namespace echelon {

/// Ranks wait for each other here as long as the bytes of a checkpoint take, not as long as the
/// run's deadline for steps says.
template <class T>
class RunCheckpoints {
 public:
  using Notify = typename Persistence<T>::Notify;

  /// References must outlive it.
  RunCheckpoints(RunThreads& run_threads, const PlanFile& plan, const RunSettings& settings,
                 const Disk& disk, const Notify& notify, Backend<T>& backend, RunHistory& history);

  /// Before the threads of the run start, by every process. Errors: as of Persistence::find.
  [[nodiscard]] Result<StartPoint> find();
  /// The last steps' losses of the resumed run.
  [[nodiscard]] const std::vector<double>& losses() const { return persistence_.losses(); }
  /// Weights and states of all ranks of this process; replicas, in whichever process, share the
  /// reading. A rank that reads for long lets no other begin its first step, where the deadline
  /// counts. `threads`: that each rank may use. Returns what was read, in words; "" if nothing was.
  [[nodiscard]] Result<std::string> fill(TrainingDevice<T>& device, int threads);
  /// The training was complete when its last process ended: a launcher that starts it again gets
  /// its export, which may be missing.
  [[nodiscard]] Status finish_again();

  void remember(double loss) { persistence_.remember(loss); }
  /// After `done` steps, by every rank; as Persistence::after_step. Throws RunFailure.
  void after_step(int rank, std::int64_t done, bool due, bool last, TrainingDevice<T>& device);
  void export_weights(int rank, TrainingDevice<T>& device);
  /// Host memory of the rank for asynchronous checkpoints.
  [[nodiscard]] Bytes reserved(int rank) const { return persistence_.reserved(rank); }

 private:
  [[nodiscard]] std::vector<std::string> exchanged(int rank, const std::string& own);
  [[nodiscard]] CheckpointGroup processes();
  void tell(const std::vector<std::int64_t>& complete);
  [[nodiscard]] std::string read_by_all();

  RunThreads& run_threads_;
  const PlanFile& plan_;
  const RunSettings& settings_;
  const Notify& notify_;
  Backend<T>& backend_;
  RunHistory& history_;                    ///< of rank 0
  std::map<std::int64_t, Seconds> begun_;  ///< by step; of rank 0
  Persistence<T> persistence_;
};

}  // namespace echelon
