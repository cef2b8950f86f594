// TrainingDevice: executes the instructions of a training step, for the ranks of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/plan/job.hpp"
#include "core/plan/process_grid.hpp"
#include "core/schedule/schedule.hpp"
#include "runtime/backend/processor.hpp"
#include "runtime/backend/timed_communicator.hpp"
#include "runtime/executor/device.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/threads/run_threads.hpp"
#include "runtime/training/learning_rate.hpp"
#include "runtime/training/optimizer_state.hpp"

namespace echelon {

/// Model, job and hyperparameters of the training.
struct Training {
  ModelSpec model;
  TrainingJob job;
  ParallelPlan plan;
  LearningRate rate;
  OptimizerStep optimizer;       ///< rate, scale and step are filled in
  double lora_alpha = 32;        ///< of job.adapters, which are scaled by it over their rank
  double clip = 1;               ///< largest gradient norm; 0: any
  std::int64_t noise_every = 0;  ///< steps between estimates of the gradient noise; 0: never
  /// Tokens of sample `number`, job.sequence + 1 of them. What it throws ends the run.
  std::function<void(std::int64_t number, std::int32_t* out)> read;
};

/// Results of a step; the same on all ranks.
struct StepResult {
  double loss = 0;  ///< mean over the tokens of the global batch
  double gradient_norm = 0;
  double learning_rate = 0;
  bool clipped = false;
  std::optional<double> small_norm;  ///< mean |g|² of single microbatches, for the noise scale
  double large_norm = 0;             ///< |G|² of the same parameters
};

/// T: the number format of weights and activations. Ranks of one process share nothing and only
/// communicate. The backend computes.
template <class T>
class TrainingDevice : public Device {
 public:
  /// Allocates everything (RunFailure::out_of_memory); the schedule is the plan's.
  TrainingDevice(RunThreads& run_threads, Backend<T>& backend, const Schedule& schedule,
                 const Training& training);
  ~TrainingDevice() override;

  void execute(Work& work) override;
  void begin_step(int rank, std::int64_t step, bool timed) override;
  void close_step(int rank) override;
  void end_step(int rank, std::int64_t step, StepTimes* times) override;
  /// A backward without a free gradient buffer is issued after the reduction that frees one. Ranks
  /// that reduce together run one program, so they agree on that.
  [[nodiscard]] std::vector<std::uint32_t> issue_order(int rank) const override;
  [[nodiscard]] Seconds now(int rank, Queue queue) const override;

  /// The global number of the executor's step 0, and of its first sample.
  void start_at(std::int64_t step, std::int64_t sample) {
    first_step_ = step;
    first_sample_ = sample;
  }
  /// Of the step that ended last.
  [[nodiscard]] StepResult result(int rank) const;
  /// Makes the rank's gradient norm NaN, when its norm is due (`--inject nan`).
  void make_nan(int rank);
  [[nodiscard]] const MemoryBreakdown& held(int rank) const;
  [[nodiscard]] std::vector<OptimizerState<T>*> states(int rank);
  [[nodiscard]] Processor<T>& processor(int rank) { return backend_.at(rank); }

 private:
  struct RankState;
  RankState& state(int rank) const;
  void allocate(RankState& r);
  void allocate_buffers(RankState& r);
  void allocate_workspace(RankState& r, bool with_gradient_buffers);
  [[nodiscard]] int gradient_buffers_of(const Program& program) const;
  [[nodiscard]] ChunkArguments<T> arguments_of(RankState& r, const Instruction& i, int unit);
  /// Of its chunk and microbatch; null if they have no buffer of the kind.
  [[nodiscard]] std::byte* buffer_of(const RankState& r, const Instruction& i,
                                     BufferKind kind) const;
  void carry_out(RankState& r, const Instruction& i, Kernels<T>& on);
  /// Samples before a step.
  [[nodiscard]] std::int64_t samples_before(std::int64_t step) const {
    return first_sample_ + (step - first_step_) * training_.job.global_batch;
  }
  [[nodiscard]] double learning_rate_of(std::int64_t step) const;
  [[nodiscard]] bool estimates_noise(std::int64_t step) const;
  void load(RankState& r, const Instruction& i, Kernels<T>& on);
  void gather(RankState& r, const Instruction& i);
  void forward(RankState& r, const Instruction& i, Kernels<T>& on);
  void backward(RankState& r, const Instruction& i, Kernels<T>& on);
  void gather_updated(RankState& r, const Instruction& i, Kernels<T>& on);
  /// Before the first forward of a step that uses the unit's weights.
  void await_updated(RankState& r, int chunk, int unit, Kernels<T>& on);
  void store_input_gradient(RankState& r, const Instruction& i, Kernels<T>& on);
  Wide<T>* gradient_buffer_of(RankState& r, const Instruction& i, int unit, Kernels<T>& on);
  void add_small_squares(RankState& r, int chunk, int unit, const Wide<T>* gradients,
                         Kernels<T>& on);
  void reduce(RankState& r, const Instruction& i, Kernels<T>& on);
  void reduce_tied(RankState& r);
  void norm(RankState& r, Kernels<T>& on);
  void step(RankState& r, Kernels<T>& on);
  [[nodiscard]] const Communicator* partners(RankState& r, const Instruction& i) const;

  Backend<T>& backend_;
  const Schedule& schedule_;
  Training training_;
  ProcessGrid grid_;
  std::int64_t first_step_ = 0;
  std::int64_t first_sample_ = 0;
  std::map<int, std::unique_ptr<RankState>> ranks_;
};

}  // namespace echelon
