// TrainingDevice: carries out instructions of a training step, for the ranks of this process.
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
#include "runtime/crew.hpp"
#include "runtime/executor/device.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/processor.hpp"
#include "runtime/training/learning_rate.hpp"
#include "runtime/training/states.hpp"
#include "runtime/training/timed_communicator.hpp"

namespace echelon {

/// What is trained and how, for the device.
struct Training {
  ModelSpec model;
  TrainingJob job;
  ParallelPlan plan;
  LearningRate rate;
  AdamStep adam;                 ///< rate, scale and step are filled in
  double clip = 1;               ///< largest gradient norm; 0: any
  std::int64_t noise_every = 0;  ///< steps between estimates of the gradient noise; 0: never
  /// Tokens of sample `number`, job.sequence + 1 of them. What it throws ends the run.
  std::function<void(std::int64_t number, std::int32_t* out)> read;
};

/// What a rank knows when its step is over; the same on all ranks.
struct StepResult {
  double loss = 0;  ///< mean over the tokens of the global batch
  double gradient_norm = 0;
  double learning_rate = 0;
  bool clipped = false;
  std::optional<double> small_norm;  ///< mean |g|² of single microbatches, for the noise scale
  double large_norm = 0;             ///< |G|² of the same parameters
};

/// T: the number format of weights and activations. Ranks of one process share nothing but what
/// they communicate through. What computes is the backend's.
template <class T>
class TrainingDevice : public Device {
 public:
  /// Allocates everything (RunFailure::out_of_memory); the schedule is the plan's.
  TrainingDevice(Crew& crew, Backend<T>& backend, const Schedule& schedule,
                 const Training& training);
  ~TrainingDevice() override;

  void execute(Work& work) override;
  void begin_step(int rank, std::int64_t step, bool timed) override;
  void end_step(int rank, StepTimes* times) override;
  /// A backward whose gradients find no free slot is called for behind the reduction that empties
  /// one. Ranks that reduce together run one program, so they agree on that.
  [[nodiscard]] std::vector<std::uint32_t> issue_order(int rank) const override;
  [[nodiscard]] Seconds now(int rank, Queue queue) const override;

  /// The step that the executor counts as 0.
  void start_at(std::int64_t step) { first_step_ = step; }
  [[nodiscard]] StepResult result(int rank) const;
  [[nodiscard]] const MemoryBreakdown& held(int rank) const;
  [[nodiscard]] std::vector<States<T>*> states(int rank);
  [[nodiscard]] Processor<T>& processor(int rank) { return backend_.at(rank); }

 private:
  struct RankState;
  RankState& state(int rank) const;
  void allocate(RankState& r);
  [[nodiscard]] int slots_of(const Program& program) const;
  [[nodiscard]] Pass<T> pass_of(RankState& r, const Instruction& i, int unit);
  void carry_out(RankState& r, const Instruction& i, Kernels<T>& on);
  void load(RankState& r, const Instruction& i, Kernels<T>& on);
  void forward(RankState& r, const Instruction& i);
  void backward(RankState& r, const Instruction& i, Kernels<T>& on);
  void hand_over_gradient(RankState& r, const Instruction& i, Kernels<T>& on);
  Wide<T>* slot_of(RankState& r, const Instruction& i, int unit, Kernels<T>& on);
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
  std::map<int, std::unique_ptr<RankState>> ranks_;
};

}  // namespace echelon
