#include "runtime/training/run.hpp"
#include "runtime/clock.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "core/fingerprint.hpp"
#include "core/schedule_check.hpp"
#include "core/version.hpp"
#include "runtime/data/samples.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/training/cpu_device.hpp"
#include "runtime/training/gradient_noise.hpp"
#include "runtime/training/loss_watch.hpp"
#include "runtime/training/measured_step.hpp"
#include "runtime/training/persistence.hpp"

namespace echelon {
namespace {

/// The first steps touch memory for the first time and are not measured.
constexpr std::int64_t kWarmUp = 2;
/// Measured steps that are kept, to choose the median one from.
constexpr std::size_t kKept = 64;

Seconds deadline_of(const PlanFile& plan, const RunSettings& settings) {
  if (settings.deadline) return *settings.deadline;
  constexpr Seconds kLeast{60};
  constexpr double kSlack = 20;
  return std::max(kLeast, kSlack * plan.predicted.time.total());
}

Training training_of(const PlanFile& plan, const RunSettings& settings, std::int64_t first,
                     int threads, const Samples& samples) {
  Training t;
  t.model = plan.model;
  t.job = plan.job;
  t.plan = plan.plan;
  t.rate = {.peak = settings.learning_rate,
            .least = std::min(settings.least_learning_rate, settings.learning_rate),
            .warmup = settings.warmup,
            .total = settings.decay_until > 0 ? settings.decay_until : first + settings.steps};
  t.adam.beta1 = settings.beta1;
  t.adam.beta2 = settings.beta2;
  t.adam.eps = settings.epsilon;
  t.adam.weight_decay = settings.weight_decay;
  t.adam.decoupled = settings.decoupled;
  t.clip = settings.clip;
  t.noise_every = settings.noise_every;
  t.threads = threads;
  t.read = [&samples](std::int64_t number, std::int32_t* out) {
    if (const Status read = samples.read(number, out); !read)
      throw RunFailure(RunFailure::Kind::defect, read.error().message());
  };
  return t;
}

/// What a rank sends to rank 0 of its measured step: begin, end, then every lap.
constexpr int kLapNumbers = 2 + kWithins;

std::vector<double> packed(const StepTimes& times, std::size_t laps) {
  std::vector<double> out{times.begin.in(kSecond), times.end.in(kSecond)};
  for (const Lap& lap : times.laps) {
    out.push_back(lap.start.in(kSecond));
    out.push_back(lap.end.in(kSecond));
    for (const Seconds part : lap.within) out.push_back(part.in(kSecond));
  }
  out.resize(2 + laps * kLapNumbers, 0);
  return out;
}

StepTimes unpacked(const double* from, std::size_t laps, int rank, int pipeline_rank) {
  StepTimes times;
  times.rank = rank;
  times.pipeline_rank = pipeline_rank;
  times.begin = Seconds{from[0]};
  times.end = Seconds{from[1]};
  times.laps.resize(laps);
  const double* at = from + 2;
  for (Lap& lap : times.laps) {
    lap.start = Seconds{at[0]};
    lap.end = Seconds{at[1]};
    for (int w = 0; w < kWithins; ++w) lap.within[static_cast<std::size_t>(w)] = Seconds{at[2 + w]};
    at += kLapNumbers;
  }
  return times;
}

constexpr std::array<Bytes MemoryBreakdown::*, 7> kMemoryParts = {
    &MemoryBreakdown::weights,     &MemoryBreakdown::gradients, &MemoryBreakdown::optimizer,
    &MemoryBreakdown::activations, &MemoryBreakdown::workspace, &MemoryBreakdown::communication,
    &MemoryBreakdown::context};

/// The run of one process: what its ranks do between their steps.
template <class T>
class Run {
 public:
  Run(const PlanFile& plan, const RunSettings& settings, const RunSurroundings& around,
      const Schedule& schedule, const Samples& samples)
      : plan_(plan),
        settings_(settings),
        around_(around),
        schedule_(schedule),
        samples_(samples),
        grid_(plan.plan),
        crew_(deadline_of(plan, settings)) {}

  Result<RunReport> run() {
    if (const Status ready = prepare(); !ready) return ready.error();
    try {
      crew_.run();
    } catch (const RunFailure& failure) {
      report_.end = failure.kind() == RunFailure::Kind::stopped ? RunReport::End::interrupted
                                                                : RunReport::End::failed;
      report_.reason = failure.what();
      kind_ = failure.kind();
      if (kind_ != RunFailure::Kind::stopped) report_.environment["failure"] = kind_name(*kind_);
    }
    finish();
    return report_;
  }

 private:
  /// Everything that can fail before the first step, and can be told as the user's input.
  Status prepare();
  void finish();
  bool step_over(const StepOver& over);
  void look_at(const StepOver& over, const StepResult& result, bool& last);
  void collect(const StepOver& over);
  bool agreed(int rank, bool yes);
  void checkpoint(int rank, std::int64_t done);
  static std::string kind_name(RunFailure::Kind kind);

  const PlanFile& plan_;
  const RunSettings& settings_;
  const RunSurroundings& around_;
  const Schedule& schedule_;
  const Samples& samples_;
  ProcessGrid grid_;
  Crew crew_;
  std::unique_ptr<World> world_;
  std::unique_ptr<CpuDevice<T>> device_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Persistence<T>> persistence_;
  std::int64_t first_ = 0;  ///< step this run begins with

  std::mutex mutex_;  ///< guards what ranks of this process share below
  std::map<int, std::vector<StepTimes>> kept_;
  std::map<int, Program> executed_;

  // Of rank 0 alone.
  RunReport report_;
  std::optional<RunFailure::Kind> kind_;
  LossWatch watch_;
  NoiseScale noise_;
  Seconds last_over_;
};

template <class T>
Status Run<T>::prepare() {
  world_ = around_.connect(crew_, plan_.plan, plan_.model);
  const auto here = static_cast<int>(world_->local_ranks().size());
  const int cores = settings_.cores > 0 ? std::min(settings_.cores, around_.cores) : around_.cores;
  // Processes of one machine share its cores as threads do.
  const int sharing = std::max(here, world_->ranks());
  const int threads = std::max(1, cores / sharing);
  persistence_ = std::make_unique<Persistence<T>>(plan_, settings_);
  const Result<std::int64_t> first = persistence_->find(around_.tell);
  if (!first) return first.error();
  first_ = *first;
  try {
    device_ = std::make_unique<CpuDevice<T>>(
        crew_, *world_, schedule_, training_of(plan_, settings_, first_, threads, samples_));
  } catch (const RunFailure& failure) {
    report_.end = RunReport::End::failed;
    return environment_error("plan run", failure.what(),
                             "fewer ranks, a smaller --microbatch, --recompute full or --zero 3");
  }
  device_->start_at(first_);
  for (const int rank : world_->local_ranks()) {
    if (const Status filled = persistence_->fill(device_->states(rank)); !filled) return filled;
  }
  ExecutorOptions options;
  options.local = world_->local_ranks();
  const std::int64_t warm = settings_.steps > kWarmUp ? kWarmUp : settings_.steps - 1;
  options.measured = [warm](std::int64_t step) { return step >= warm; };
  options.step_over = [this](const StepOver& over) { return step_over(over); };
  executor_ = std::make_unique<Executor>(crew_, schedule_, grid_, *device_, options);
  executor_->enlist();
  report_.plan = plan_;
  report_.plan_path = settings_.plan;
  report_.schedule_hash = fingerprint(plan_.program);
  report_.launcher = settings_.launcher;
  report_.ranks = grid_.ranks();
  report_.environment["threads per rank"] = std::to_string(threads);
  report_.environment["cores"] = std::to_string(cores);
  report_.environment["version"] = std::string(version()) + " (" + std::string(commit()) + ")";
  report_.environment["data"] = settings_.data.empty() ? "synthetic" : settings_.data;
  around_.tell({.kind = RunEvent::Kind::started,
                .step = {},
                .of = 0,
                .text = fmt::format("{} on {} ranks, {} threads each", plan_.model.name,
                                    grid_.ranks(), threads)});
  last_over_ = steady_now();
  return Done{};
}

/// Whether any rank says yes; all get the same answer.
template <class T>
bool Run<T>::agreed(int rank, bool yes) {
  std::int32_t flag = yes ? 1 : 0;
  Communicator& all = world_->at(rank, Line::host);
  if (all.size() > 1) all.all_reduce(&flag, 1, Element::i32, Reduction::max);
  return flag != 0;
}

template <class T>
bool Run<T>::step_over(const StepOver& over) {
  const StepResult result = device_->result(over.rank);
  bool last = over.step + 1 >= settings_.steps;
  if (over.times != nullptr) {
    const std::lock_guard lock(mutex_);
    auto& kept = kept_[over.rank];
    if (kept.size() < kKept) kept.push_back(*over.times);
  }
  if (const Instruction* odd = over.record.odd()) {
    throw RunFailure(RunFailure::Kind::defect,
                     describe(over.pipeline_rank, *odd) + " was not executed just once");
  }
  if (over.rank == 0) look_at(over, result, last);
  const bool interrupted =
      agreed(over.rank, around_.interrupted != nullptr && *around_.interrupted != 0);
  const std::int64_t done = first_ + over.step + 1;
  const bool due = settings_.checkpoint_every > 0 && done % settings_.checkpoint_every == 0;
  const bool diverged = !std::isfinite(result.loss) || !std::isfinite(result.gradient_norm);
  last = last || interrupted;
  if (!settings_.checkpoint_dir.empty() && (due || last) && !diverged) checkpoint(over.rank, done);
  if (last) {
    collect(over);
    if (!settings_.export_to.empty() && !diverged) {
      const Status written = persistence_->export_weights(
          over.rank, device_->states(over.rank),
          [&](bool fine) { return !agreed(over.rank, !fine); }, grid_.ranks());
      if (!written) throw RunFailure(RunFailure::Kind::defect, written.error().message());
    }
    if (over.rank == 0 && interrupted) {
      report_.end = RunReport::End::interrupted;
      report_.reason = "interrupted: ended after its step";
    }
  }
  if (over.rank == 0) last_over_ = steady_now();
  return !last;
}

/// Rank 0 tells the step and watches the loss. All ranks know the same numbers; a diverged run is
/// ended by rank 0 for all.
template <class T>
void Run<T>::look_at(const StepOver& over, const StepResult& result, bool& last) {
  RunStep step;
  step.step = first_ + over.step;
  step.loss = result.loss;
  step.gradient_norm = result.gradient_norm;
  step.learning_rate = result.learning_rate;
  step.seconds = steady_now() - last_over_;
  step.tokens_per_second = plan_.job.tokens_per_step() / step.seconds.in(kSecond);
  if (result.small_norm) {
    noise_.add(*result.small_norm, plan_.plan.microbatch, result.large_norm,
               static_cast<double>(plan_.job.global_batch));
  }
  const LossWatch::Judgement judgement = watch_.look(step.loss, step.gradient_norm);
  if (judgement.verdict != LossWatch::Verdict::fine) step.notes.push_back(judgement.what);
  persistence_->remember(step.loss);
  report_.steps.push_back(step);
  around_.tell(
      {.kind = RunEvent::Kind::step, .step = step, .of = first_ + settings_.steps, .text = {}});
  if (judgement.verdict == LossWatch::Verdict::diverged) {
    throw RunFailure(RunFailure::Kind::diverged,
                     fmt::format("step {}: {}", step.step, judgement.what));
  }
  (void)last;
}

template <class T>
void Run<T>::checkpoint(int rank, std::int64_t done) {
  const Status written = persistence_->write(rank, grid_.ranks(), done, device_->states(rank),
                                             [&](bool fine) { return !agreed(rank, !fine); });
  if (!written) throw RunFailure(RunFailure::Kind::defect, written.error().message());
  if (rank == 0) {
    around_.tell(
        {.kind = RunEvent::Kind::checkpoint,
         .step = {},
         .of = 0,
         .text = fmt::format("checkpoint of step {} in {}", done, settings_.checkpoint_dir)});
  }
}

/// After the last step: what every rank measured goes to all of them, and rank 0 keeps it.
template <class T>
void Run<T>::collect(const StepOver& over) {
  Communicator& all = world_->at(over.rank, Line::host);
  const auto ranks = static_cast<std::size_t>(grid_.ranks());
  const auto gathered = [&](const std::vector<double>& own) {
    std::vector<double> out(own.size() * ranks);
    if (ranks > 1)
      all.all_gather(own.data(), out.data(), static_cast<std::int64_t>(own.size()), Element::f64);
    else
      out = own;
    return out;
  };
  // Step 1: the median of rank 0's measured steps.
  std::vector<StepTimes> kept;
  {
    const std::lock_guard lock(mutex_);
    kept = kept_[over.rank];
    executed_[over.pipeline_rank] = over.record.executed();
  }
  std::int32_t chosen = -1;
  if (over.rank == 0 && !kept.empty()) {
    std::vector<std::int32_t> order(kept.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const StepTimes& x = kept[static_cast<std::size_t>(a)];
      const StepTimes& y = kept[static_cast<std::size_t>(b)];
      return x.end - x.begin < y.end - y.begin;
    });
    chosen = order[order.size() / 2];
  }
  if (ranks > 1) all.broadcast(&chosen, 1, Element::i32, 0);
  // Step 2: memory of all ranks, and what the operating system saw of their processes.
  const MemoryBreakdown& held = device_->held(over.rank);
  std::vector<double> numbers;
  for (const auto part : kMemoryParts) numbers.push_back((held.*part).in(kByte));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const bool first_here = world_->local_ranks().front() == over.rank;
  constexpr double kKibibyte = 1024;
  numbers.push_back(first_here ? kKibibyte * static_cast<double>(usage.ru_maxrss) : 0);
  const std::vector<double> memory = gathered(numbers);
  // Step 3: the chosen step of all ranks.
  std::size_t laps = 0;
  for (const Program& program : schedule_.programs)
    laps = std::max(laps, program.instructions.size());
  std::vector<double> times;
  if (chosen >= 0) times = gathered(packed(kept[static_cast<std::size_t>(chosen)], laps));
  if (over.rank != 0) return;

  PredictedCosts measured;
  measured.fits = true;
  measured.capacity = plan_.predicted.capacity;
  measured.stages.resize(static_cast<std::size_t>(plan_.plan.pp));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double* from = memory.data() + rank * numbers.size();
    MemoryBreakdown of_rank;
    for (std::size_t part = 0; part < kMemoryParts.size(); ++part)
      of_rank.*kMemoryParts[part] = Bytes{from[part]};
    report_.process_peak += Bytes{from[kMemoryParts.size()]};
    const auto stage = static_cast<std::size_t>(grid_.coordinates(static_cast<int>(rank)).pp);
    if (of_rank.total() > measured.stages[stage].total()) measured.stages[stage] = of_rank;
    measured.peak = std::max(measured.peak, of_rank.total());
  }
  measured.peak_reserved = measured.peak;
  if (chosen < 0) return;
  std::vector<StepTimes> all_times;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const int stage = grid_.coordinates(static_cast<int>(rank)).pp;
    const std::size_t own = schedule_.programs[static_cast<std::size_t>(stage)].instructions.size();
    all_times.push_back(unpacked(times.data() + rank * (2 + laps * kLapNumbers), own,
                                 static_cast<int>(rank), stage));
  }
  write_measured(schedule_, all_times, std::move(measured), report_);
}

template <class T>
void Run<T>::finish() {
  std::vector<Program> programs;
  for (auto& [rank, program] : executed_) programs.push_back(program);
  if (programs.size() == schedule_.programs.size())
    report_.executed_hash = executed_hash(schedule_, programs);
  report_.noise = noise_.estimate();
  if (!report_.steps.empty()) {
    report_.advice = batch_advice(report_.noise, static_cast<double>(plan_.job.global_batch),
                                  settings_.learning_rate);
  }
  around_.tell({.kind = RunEvent::Kind::ended,
                .step = {},
                .of = 0,
                .text = std::string(name_of(report_.end))});
}

template <class T>
std::string Run<T>::kind_name(RunFailure::Kind kind) {
  switch (kind) {
    case RunFailure::Kind::stopped: return "stopped";
    case RunFailure::Kind::hang: return "hang";
    case RunFailure::Kind::out_of_memory: return "out of memory";
    case RunFailure::Kind::diverged: return "diverged";
    case RunFailure::Kind::peer_lost: return "peer lost";
    case RunFailure::Kind::defect: return "defect";
  }
  return "?";
}

}  // namespace

Result<RunReport> run_plan(const PlanFile& plan, const RunSettings& settings,
                           const RunSurroundings& around) {
  if (const Status ok = check_executable(plan); !ok) return ok.error();
  const Result<Schedule> schedule = parse_schedule_text(plan.program, settings.plan);
  if (!schedule) return schedule.error();
  if (const auto faults = check_schedule(*schedule); !faults.empty()) {
    return input_error(settings.plan, "an unsound program: " + faults.front().what,
                       "a program as plan writes it", "write the plan again");
  }
  Result<std::unique_ptr<TokenSource>> source =
      open_tokens(settings.data.empty() ? "synthetic" : settings.data, plan.model.vocab);
  if (!source) return source.error();
  const Result<Samples> samples =
      Samples::make(*std::move(source), plan.job.sequence, settings.seed, settings.data);
  if (!samples) return samples.error();
  if (plan.job.precision.compute == Dtype::bf16)
    return Run<Bfloat16>(plan, settings, around, *schedule, *samples).run();
  return Run<float>(plan, settings, around, *schedule, *samples).run();
}

int exit_code_of(const RunReport& report) {
  if (report.end == RunReport::End::completed) return 0;
  constexpr int kInterrupted = 130;  // 128 + SIGINT, as shells have it
  if (report.end == RunReport::End::interrupted) return kInterrupted;
  const auto kind = report.environment.find("failure");
  const std::string name = kind == report.environment.end() ? "" : kind->second;
  if (name == "hang") return 4;
  if (name == "out of memory") return 5;
  if (name == "diverged") return 6;
  if (name == "peer lost") return 7;
  return 70;
}

}  // namespace echelon
