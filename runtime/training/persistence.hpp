// Persistence: source of a run's weights and destination of its state.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan_file.hpp"
#include "core/run/run_event.hpp"
#include "core/run/run_settings.hpp"
#include "runtime/backend/processor.hpp"
#include "runtime/io/weights/async_checkpoint.hpp"
#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/io/weights/huggingface.hpp"
#include "runtime/training/folder_lock.hpp"
#include "runtime/training/optimizer_state.hpp"
#include "runtime/training/shared_reading.hpp"
#include "runtime/training/start_point.hpp"

namespace echelon {

/// Bytes that a process has read at its start.
struct ReadBytes {
  std::int64_t state = 0;
  std::int64_t hashed = 0;
};

/// Initial weights (from the seed, a HuggingFace folder or a checkpoint), checkpoints, export.
template <class T>
class Persistence {
 public:
  using Exchange = decltype(CheckpointGroup::exchange);
  using Notify = std::function<void(const RunEvent&)>;

  /// `disk` must outlive it.
  Persistence(const PlanFile& plan, const RunSettings& settings, const Disk& disk);

  /// Where the run begins: at step 0, or at the checkpoint to resume from, whose notes are
  /// reported. All processes of the run call it and get the same. Errors: --resume without a
  /// checkpoint, or only damaged ones; no --resume and checkpoints of an earlier run in the folder;
  /// folders that cannot be written or have too little space for what the run will write; an
  /// --init-from folder (which stays open) of another model; a model that --export cannot
  /// represent; another run that writes checkpoints into the folder, which belongs to this one from
  /// here on.
  [[nodiscard]] Result<StartPoint> find(const CheckpointGroup& processes, const Notify& notify);
  /// Fills the weights (and, when resuming, the optimizer states) of one rank. Every rank calls it
  /// at the same time: replicas share the reading. After an error of one, no rank's are valid.
  [[nodiscard]] Status fill(const std::vector<OptimizerState<T>*>& states, Processor<T>& processor,
                            const Replicas& replicas);
  /// By this process, of weights, states and headers; and to check the hashes of a checkpoint.
  [[nodiscard]] ReadBytes bytes_read() const;
  /// Before the first step, for every rank of this process: memory for asynchronous checkpoints.
  void reserve(int rank, int ranks, const std::vector<OptimizerState<T>*>& states);
  /// Host memory of the rank that this took.
  [[nodiscard]] Bytes reserved(int rank) const;
  /// The last steps' losses, for the loss watch of a resumed run.
  void remember(double loss);
  [[nodiscard]] const std::vector<double>& losses() const { return losses_; }

  /// Every rank calls it at the same time, after `steps` steps. `due`: writes a checkpoint, or
  /// starts to; `last`: waits until none is in flight. Returns the steps of those that became
  /// complete.
  [[nodiscard]] Result<std::vector<std::int64_t>> after_step(
      int rank, int ranks, std::int64_t steps, bool due, bool last,
      const std::vector<OptimizerState<T>*>& states, Processor<T>& processor,
      const Exchange& exchange);
  /// The weights as a HuggingFace folder: written like a checkpoint and converted by rank 0.
  [[nodiscard]] Status export_weights(int rank, int ranks,
                                      const std::vector<OptimizerState<T>*>& states,
                                      Processor<T>& processor, const Exchange& exchange) const;
  /// The same from the checkpoint that was found, for a run without steps to do; by one process.
  [[nodiscard]] Status export_found() const;
  /// How long ranks wait for each other in all of this: a minute (or the run's --timeout, if that
  /// is longer) and the time that the bytes of a checkpoint take on a slow disk.
  [[nodiscard]] Seconds longest_wait() const { return longest_wait_; }
  /// Of one checkpoint, without its manifest.
  [[nodiscard]] Bytes checkpoint_size() const { return checkpoint_size_; }

 private:
  [[nodiscard]] RunIdentity identity() const;
  [[nodiscard]] CheckpointContents contents(std::int64_t steps) const;
  [[nodiscard]] Status fill_weights(const FlatParameters& flat, std::int64_t begin,
                                    std::int64_t end, T* out, Communicator& replicas) const;
  [[nodiscard]] Status lock_folder(const Notify& notify);
  [[nodiscard]] Status check_new_folder() const;
  [[nodiscard]] Status resume(const CheckpointGroup& processes);

  const PlanFile& plan_;
  const RunSettings& settings_;
  const Disk& disk_;
  Bytes checkpoint_size_;
  Seconds longest_wait_;
  std::optional<FolderLock> lock_;  ///< of the process that leads
  std::optional<FoundCheckpoint> found_;
  std::optional<HuggingFaceWeights> given_;   ///< --init-from
  std::atomic<std::int64_t> bytes_read_ = 0;  ///< of checkpoints, by all local ranks
  std::vector<double> losses_;
  StartPoint start_;
  std::map<int, std::unique_ptr<AsyncCheckpoint>> async_;  ///< by rank
};

}  // namespace echelon
