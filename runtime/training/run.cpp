#include "runtime/training/run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/base/content_hash.hpp"
#include "core/version.hpp"
#include "runtime/cpu/cpu_backend.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/threads/clock.hpp"
#include "runtime/threads/flight_recorder.hpp"
#include "runtime/threads/watchdog.hpp"
#include "runtime/training/faulty_device.hpp"
#include "runtime/training/gathering.hpp"
#include "runtime/training/gradient_noise.hpp"
#include "runtime/training/loss_watch.hpp"
#include "runtime/training/machine_load.hpp"
#include "runtime/training/run_checkpoints.hpp"
#include "runtime/training/run_inputs.hpp"
#include "runtime/training/run_messages.hpp"
#include "runtime/training/training_device.hpp"

namespace echelon {
namespace {

/// The first steps touch memory for the first time and are not measured.
constexpr std::int64_t kWarmUp = 2;
/// The last measured steps, which are kept to choose the median one from: the first ones are faster
/// than later ones on a GPU that is not warm yet.
constexpr std::size_t kKept = 64;

/// The run of one process: the work of its ranks between their steps.
template <class T>
class Run {
 public:
  Run(const PlanFile& plan, const RunSettings& settings, const RunContext& context,
      const Schedule& schedule, const Samples& samples)
      : plan_(plan),
        settings_(settings),
        context_(context),
        schedule_(schedule),
        samples_(samples),
        grid_(plan.plan),
        disk_(settings.inject.empty() ? context.disk : disk_that_fills(disk_full_)),
        history_(settings.checkpoint_dir),
        run_threads_(timeout_of(plan, settings), start_up_of(settings)),
        watch_(settings.max_skipped_steps) {}

  Result<RunReport> run() {
    try {
      if (const Status ready = prepare(); !ready) {
        run_threads_.stop(
            RunFailure(ready.error()));  // other processes are notified when the world is destroyed
        return ready.error();
      }
      if (start_.step < start_.end) run_threads_.run();
    } catch (const RunFailure& failure) {
      failed(failure);
    } catch (const std::exception&) {
      failed(as_run_failure(std::current_exception()));
    }
    finish();
    return report_;
  }

 private:
  /// Everything that can fail before the first step and is reported as invalid input.
  Status prepare();
  Status connect();
  void notify(RunEvent::Kind kind, const std::string& text) const {
    context_.notify({.kind = kind, .step = {}, .of = 0, .text = text});
  }
  void failed(const RunFailure& failure);
  void finish();
  bool on_step_end(const StepEnd& over);
  void report_step(const StepEnd& over, const StepResult& result);
  void collect(const StepEnd& over);
  bool has_learned_nothing(const StepEnd& over, const StepResult& result);
  std::int32_t largest(int rank, std::int32_t number);
  [[nodiscard]] std::int32_t request_of(int rank) const;
  [[nodiscard]] bool is_checkpoint_due(std::int64_t done) const {
    return settings_.checkpoint_every > 0 && done % settings_.checkpoint_every == 0;
  }

  const PlanFile& plan_;
  const RunSettings& settings_;
  const RunContext& context_;
  const Schedule& schedule_;
  const Samples& samples_;
  ProcessGrid grid_;
  std::shared_ptr<std::atomic<bool>> disk_full_ = std::make_shared<std::atomic<bool>>(false);
  Disk disk_;  ///< full on demand, with --inject
  RunHistory history_;
  RunThreads run_threads_;
  int threads_ = 1;  ///< of a rank
  std::unique_ptr<Backend<T>> backend_;
  FlightRecorders recorders_;
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<TrainingDevice<T>> device_;
  std::unique_ptr<FaultyDevice> faulty_;  ///< around it, with --inject
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<RunCheckpoints<T>> checkpoints_;
  StartPoint start_;

  std::int64_t warm_ = 0;           ///< steps before the first that is measured
  std::optional<CoreTime> before_;  ///< at the first measured step; of the first rank here

  std::mutex mutex_;  ///< guards what ranks of this process share below
  std::map<int, std::vector<StepTimes>> kept_;
  std::map<int, std::int64_t> learned_;  ///< by rank: steps that changed the weights

  // Of the first rank here; complete where that is rank 0.
  RunReport report_;
  LossWatch watch_;
  NoiseScale noise_;
  Seconds last_over_;
};

/// Processes of one machine share its cores as threads do.
template <class T>
Status Run<T>::connect() {
  Result<std::unique_ptr<World>> connected =
      context_.connect(run_threads_, plan_.plan, plan_.model);
  if (!connected) return connected.error();
  const int cores =
      settings_.cores > 0 ? std::min(settings_.cores, context_.cores) : context_.cores;
  threads_ = std::max(1, cores / (*connected)->ranks_on_this_machine());
  if (settings_.backend == "cuda") {
    if constexpr (std::is_same_v<T, Bfloat16>) {
      Result<std::unique_ptr<Backend<T>>> opened =
          context_.cuda(run_threads_, *std::move(connected), plan_);
      if (!opened) return opened.error();
      backend_ = *std::move(opened);
    }
    return Done{};
  }
  backend_ = cpu_backend<T>(*std::move(connected), threads_);
  report_.environment[kThreadsPerRank] = std::to_string(threads_);
  report_.environment["cores"] = std::to_string(cores);
  return Done{};
}

template <class T>
Status Run<T>::prepare() {
  report_.plan = plan_;
  report_.plan_path = settings_.plan;
  report_.schedule_hash = content_hash(plan_.program);
  report_.backend = settings_.backend;
  report_.launcher = context_.launcher;
  report_.ranks = grid_.ranks();
  report_.environment["version"] = std::string(version()) + " (" + std::string(commit()) + ")";
  report_.environment["data"] = settings_.data.empty() ? "synthetic" : settings_.data;
  if (const Status connected = connect(); !connected) return connected;
  report_.environment.merge(backend_->environment());
  checkpoints_ = std::make_unique<RunCheckpoints<T>>(run_threads_, plan_, settings_, disk_,
                                                     context_.notify, *backend_, history_);
  Result<StartPoint> start = checkpoints_->find();
  if (!start) return start.error();
  start_ = *std::move(start);
  if (!start_.notes.empty())
    report_.environment["start"] = fmt::format("{}", fmt::join(start_.notes, "; "));
  if (start_.step == start_.end) {
    report_.reason = fmt::format("all {} steps were done before", start_.end);
    notify(RunEvent::Kind::note, report_.reason);
    return checkpoints_->finish_again();
  }
  for (const double loss : checkpoints_->losses()) (void)watch_.assess(loss, 0);
  device_ = std::make_unique<TrainingDevice<T>>(
      run_threads_, *backend_, schedule_, training_of(plan_, settings_, start_.rate, samples_));
  report_.environment.merge(backend_->environment());  // its choices for this model
  device_->start_at(start_.step, start_.sample);
  const Result<std::string> filled = checkpoints_->fill(*device_, threads_);
  if (!filled) return filled.error();
  if (!filled->empty()) report_.environment["read at the start"] = *filled;
  const std::int64_t steps = start_.end - start_.step;
  const std::vector<int>& here = backend_->world().local_ranks();
  ExecutorOptions options;
  options.local = here;
  options.first_step = start_.step;
  options.in_order = backend_->issues_in_order();
  options.awaited = [this](std::int64_t step) {
    const std::int64_t done = start_.step + step + 1;
    return done >= start_.end || is_checkpoint_due(done);
  };
  warm_ = std::min(kWarmUp, steps - 1);
  options.measured = [this](std::int64_t step) { return step >= warm_; };
  options.on_step_end = [this](const StepEnd& over) { return on_step_end(over); };
  Device* device = device_.get();
  if (!settings_.inject.empty()) {
    faulty_ = std::make_unique<FaultyDevice>(
        run_threads_, *device_, backend_->world(), settings_.inject, start_.step,
        FaultyDevice::Means{[this](int rank) { device_->make_nan(rank); },
                            context_.corrupt_message});
    device = faulty_.get();
  }
  executor_ = std::make_unique<Executor>(run_threads_, schedule_, grid_, *device, options);
  executor_->add_threads();
  const Status recorded =
      recorders_.open(run_threads_, flight_folder_of(settings_), here, grid_.ranks());
  if (!recorded) return recorded;
  watchdog_ =
      std::make_unique<Watchdog>(run_threads_, here.front(), grid_.ranks(),
                                 backend_->world().status_link(), timeout_of(plan_, settings_));
  notify(RunEvent::Kind::started, started_text(report_));
  if (here.front() == 0) {
    const std::string unread = history_.begin();
    if (!unread.empty()) notify(RunEvent::Kind::note, unread);
  }
  last_over_ = steady_now();
  if (warm_ == 0) before_ = core_time();
  return Done{};
}

/// The largest number of any rank; all get the same.
template <class T>
std::int32_t Run<T>::largest(int rank, std::int32_t number) {
  Communicator& all = backend_->world().at(rank, GroupRole::control);
  if (all.size() > 1) all.all_reduce(&number, 1, Element::i32, Reduction::max);
  return number;
}

/// Whether the run is to end after this step. 0: no; 1: on request; 2 + rank: because the program
/// that started this rank has died.
template <class T>
std::int32_t Run<T>::request_of(int rank) const {
  if (context_.interrupted == nullptr || *context_.interrupted == 0) return 0;
  const bool one_of_several = backend_->world().local_ranks().size() == 1 && grid_.ranks() > 1;
  return *context_.interrupted == kOrphaned && one_of_several ? 2 + rank : 1;
}

/// Every step until now was skipped: the weights may be NaN themselves, and are those from before.
/// The same on all ranks.
template <class T>
bool Run<T>::has_learned_nothing(const StepEnd& over, const StepResult& result) {
  const std::lock_guard lock(mutex_);
  std::int64_t& learned = learned_[over.rank];
  if (std::isfinite(result.loss) && std::isfinite(result.gradient_norm)) ++learned;
  return learned == 0;
}

template <class T>
bool Run<T>::on_step_end(const StepEnd& over) {
  const StepResult result = device_->result(over.rank);
  bool last = start_.step + over.step + 1 >= start_.end;
  if (over.times != nullptr) {
    const std::lock_guard lock(mutex_);
    auto& kept = kept_[over.rank];
    if (kept.size() == kKept) kept.erase(kept.begin());
    kept.push_back(*over.times);
  }
  if (const Instruction* first_irregular = over.record.first_irregular()) {
    throw RunFailure(RunFailure::Kind::defect, describe(over.pipeline_rank, *first_irregular) +
                                                   " was not executed just once");
  }
  const bool first_here = over.rank == backend_->world().local_ranks().front();
  if (first_here && over.step >= warm_)
    run_threads_.raise_deadline(timeout_after(settings_, steady_now() - last_over_));
  if (over.rank == 0) report_step(over, result);
  const std::int64_t done = start_.step + over.step + 1;
  if (has_full_disk(settings_.inject, over.rank, done)) *disk_full_ = true;  // before all meet
  const std::int32_t request = largest(over.rank, request_of(over.rank));
  const bool interrupted = request > 0;
  const bool diverged = has_learned_nothing(over, result);
  if (interrupted && over.next_issued) return false;  // the next step is the last one
  last = last || interrupted;
  const bool due = is_checkpoint_due(done);
  checkpoints_->after_step(over.rank, done, (due || last) && !diverged, last, *device_);
  if (last) {
    collect(over);
    if (!diverged) checkpoints_->export_weights(over.rank, *device_);
    if (request > 1) {
      throw RunFailure(RunFailure::Kind::peer_lost,
                       fmt::format("rank {} is gone: its plan was killed; the run ended after step "
                                   "{}",
                                   request - 2, start_.step + over.step));
    }
    if (first_here && interrupted) {
      report_.end = RunReport::End::interrupted;
      report_.reason = "interrupted: stopped after the current step";
    }
  }
  if (first_here) last_over_ = steady_now();
  if (first_here && over.step + 1 == warm_) before_ = core_time();
  return !last;
}

/// Rank 0 reports the step and assesses the loss. All ranks know the same numbers; rank 0 ends a
/// diverged run for all.
template <class T>
void Run<T>::report_step(const StepEnd& over, const StepResult& result) {
  RunStep step;
  step.step = start_.step + over.step;
  step.loss = result.loss;
  step.gradient_norm = result.gradient_norm;
  step.learning_rate = result.learning_rate;
  step.seconds = steady_now() - last_over_;
  step.tokens_per_second = plan_.job.tokens_per_step() / step.seconds.in(kSecond);
  if (result.small_norm) {
    noise_.add(*result.small_norm, plan_.plan.microbatch, result.large_norm,
               static_cast<double>(plan_.job.global_batch));
  }
  const LossWatch::Assessment assessment = watch_.assess(step.loss, step.gradient_norm);
  if (assessment.level != LossWatch::Level::fine) step.notes.push_back(assessment.what);
  if (std::isfinite(step.loss)) checkpoints_->remember(step.loss);
  report_.steps.push_back(step);
  history_.alive();
  context_.notify({.kind = RunEvent::Kind::step, .step = step, .of = start_.end, .text = {}});
  if (assessment.level == LossWatch::Level::diverged) {
    throw RunFailure(RunFailure::Kind::diverged,
                     fmt::format("step {}: {}", step.step, assessment.what));
  }
}

/// After the last step: the measurements of all ranks go to rank 0.
template <class T>
void Run<T>::collect(const StepEnd& over) {
  backend_->at(over.rank).count_rest();
  RankMeasurements own{.rank = over.rank,
                       .pipeline_rank = over.pipeline_rank,
                       .steps = {},
                       .held = device_->held(over.rank),
                       .checkpoint_copy = checkpoints_->reserved(over.rank),
                       .process_peak = {},
                       .use = {},
                       .measured_steps = over.step + 1 - warm_,
                       .record = over.record};
  {
    const std::lock_guard lock(mutex_);
    own.steps = std::move(kept_[over.rank]);
  }
  if (over.rank == backend_->world().local_ranks().front()) {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    own.process_peak = Bytes{1024.0 * static_cast<double>(usage.ru_maxrss)};
    own.use = process_use(before_, core_time());
  }
  gather_measurements(backend_->world().at(over.rank, GroupRole::control), own, schedule_, report_);
}

template <class T>
void Run<T>::failed(const RunFailure& failure) {
  run_threads_.stop(failure);
  if (backend_) backend_->give_up();
  report_failure(failure, plan_, report_);
  if (backend_ && settings_.backend == "cuda") context_.gpus_failed(report_);
  recorders_.end(&failure);
}

template <class T>
void Run<T>::finish() {
  report_.noise = noise_.estimate();
  if (backend_) report_.environment.merge(backend_->environment());  // what it made meanwhile
  if (watch_.skipped() > 0) report_.environment["skipped steps"] = std::to_string(watch_.skipped());
  if (!report_.steps.empty()) {
    report_.advice = batch_advice(report_.noise, static_cast<double>(plan_.job.global_batch),
                                  settings_.learning_rate);
  }
  if (report_.end != RunReport::End::failed) recorders_.end(nullptr);
  const bool orphaned = context_.interrupted != nullptr && *context_.interrupted == kOrphaned;
  report_.goodput = history_.end(how_ended(report_, orphaned));
  notify(RunEvent::Kind::ended, std::string(name_of(report_.end)));
}

}  // namespace

Result<RunReport> run_plan(const PlanFile& plan, const RunSettings& settings,
                           const RunContext& context) {
  if (const Status ok = check_executable(plan, settings.backend); !ok) return ok.error();
  const Status faults =
      check_faults(settings.inject, {.ranks = static_cast<int>(plan.plan.gpus()),
                                     .backend = settings.backend,
                                     .launcher = context.launcher,
                                     .corrupts = context.corrupt_message != nullptr,
                                     .checkpoints = !settings.checkpoint_dir.empty()});
  if (!faults) return faults.error();
  const Result<Schedule> schedule = schedule_of(plan, settings.plan);
  if (!schedule) return schedule.error();
  const Result<Samples> samples = samples_of(plan, settings);
  if (!samples) return samples.error();
  if (plan.job.precision.compute == Dtype::bf16)
    return Run<Bfloat16>(plan, settings, context, *schedule, *samples).run();
  if (plan.job.precision.compute == Dtype::fp64)
    return Run<double>(plan, settings, context, *schedule, *samples).run();
  return Run<float>(plan, settings, context, *schedule, *samples).run();
}

}  // namespace echelon
