// Persistence: source of a run's weights and destination of its state.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan_file.hpp"
#include "core/run/run_event.hpp"
#include "core/run/run_settings.hpp"
#include "runtime/backend/processor.hpp"
#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/io/weights/huggingface.hpp"
#include "runtime/training/optimizer_state.hpp"

namespace echelon {

/// Initial weights (from the seed, a HuggingFace folder or a checkpoint), checkpoints, export.
template <class T>
class Persistence {
 public:
  using Agree = std::function<bool(bool)>;  ///< whether all ranks passed true

  Persistence(const PlanFile& plan, const RunSettings& settings);

  /// The first step: 0, or that of the checkpoint to resume from, whose notes are reported. Errors:
  /// --resume without a checkpoint, or only damaged ones; no --resume and checkpoints of an earlier
  /// run in the folder; an --init-from folder (which stays open) of another model; a model that
  /// --export cannot represent.
  [[nodiscard]] Result<std::int64_t> find(const std::function<void(const RunEvent&)>& notify);
  /// Fills the weights (and, when resuming, the optimizer states) of one rank.
  [[nodiscard]] Status fill(const std::vector<OptimizerState<T>*>& states,
                            Processor<T>& processor) const;
  /// The last steps' losses, for the loss watch of a resumed run.
  void remember(double loss);
  [[nodiscard]] const std::vector<double>& losses() const { return losses_; }
  /// Every rank calls it at the same time, after `steps` steps.
  [[nodiscard]] Status write(int rank, int ranks, std::int64_t steps,
                             const std::vector<OptimizerState<T>*>& states, Processor<T>& processor,
                             const Agree& agree) const;
  /// The weights as a HuggingFace folder: written like a checkpoint and converted by rank 0.
  [[nodiscard]] Status export_weights(int rank, const std::vector<OptimizerState<T>*>& states,
                                      Processor<T>& processor, const Agree& agree, int ranks) const;

 private:
  [[nodiscard]] RunIdentity identity() const;
  [[nodiscard]] CheckpointContents contents(std::int64_t steps) const;
  [[nodiscard]] Status fill_weights(const FlatParameters& flat, std::int64_t begin,
                                    std::int64_t end, T* out) const;

  const PlanFile& plan_;
  const RunSettings& settings_;
  std::optional<FoundCheckpoint> found_;
  std::optional<HuggingFaceWeights> given_;  ///< --init-from
  std::vector<double> losses_;
};

}  // namespace echelon
