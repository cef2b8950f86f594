#include "runtime/training/run_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/schedule/schedule_check.hpp"

namespace echelon {
namespace {

/// Prefixes the location with the flag concerned.
Error of_flag(const char* flag, Error error) {
  error.where = std::string(flag) + ": " + error.where;
  return error;
}

}  // namespace

Result<Schedule> schedule_of(const PlanFile& plan, const std::string& path) {
  Result<Schedule> schedule = parse_schedule_text(plan.program, path);
  if (!schedule) return schedule.error();
  if (const auto faults = check_schedule(*schedule); !faults.empty()) {
    return input_error(path, "an invalid program: " + faults.front().what,
                       "a program as plan writes it", "write the plan again");
  }
  const ParallelPlan& degrees = plan.plan;
  const std::int64_t microbatches = degrees.microbatches_rounded_up(plan.job.global_batch);
  if (schedule->ranks == degrees.pp && schedule->chunks == degrees.vpp &&
      schedule->microbatches == microbatches) {
    return schedule;
  }
  const auto described = [](std::int64_t ranks, std::int64_t chunks, std::int64_t count) {
    return fmt::format("{} pipeline ranks, {} chunks each, {} microbatches", ranks, chunks, count);
  };
  return input_error(
      path, "a program for " + described(schedule->ranks, schedule->chunks, schedule->microbatches),
      described(degrees.pp, degrees.vpp, microbatches), "write the plan again");
}

Result<Samples> samples_of(const PlanFile& plan, const RunSettings& settings) {
  Result<std::unique_ptr<TokenSource>> source =
      open_tokens(settings.data.empty() ? "synthetic" : settings.data, plan.model.vocab);
  if (!source) return of_flag("--data", source.error());
  Result<Samples> samples =
      Samples::make(*std::move(source), plan.job.sequence, settings.seed, settings.data);
  if (!samples) return of_flag("--data", samples.error());
  return samples;
}

Seconds timeout_of(const PlanFile& plan, const RunSettings& settings) {
  constexpr Seconds kMin{60};
  constexpr double kSlack = 20;
  return settings.timeout.value_or(std::max(kMin, kSlack * plan.predicted.time.total()));
}

/// Ranks start up at different times: one creates its CUDA context, another reads its libraries
/// from a file system that is not in a cache yet. As PyTorch's default for groups of NCCL,
/// torch/distributed/constants.py.
Seconds start_up_of(const RunSettings& settings) {
  return settings.timeout ? Seconds{} : Seconds{600};
}

Seconds timeout_after(const RunSettings& settings, Seconds step) {
  constexpr double kSlack = 10;
  return settings.timeout.value_or(kSlack * step);
}

Training training_of(const PlanFile& plan, const RunSettings& settings, const LearningRate& rate,
                     const Samples& samples) {
  Training t;
  t.model = plan.model;
  t.job = plan.job;
  t.plan = plan.plan;
  t.rate = rate;
  t.optimizer.beta1 = settings.beta1;
  t.optimizer.beta2 = settings.beta2;
  t.optimizer.eps = settings.epsilon;
  t.optimizer.weight_decay = settings.weight_decay;
  t.optimizer.decoupled = settings.decoupled;
  t.lora_alpha = settings.lora_alpha;
  t.clip = settings.max_grad_norm;
  t.noise_every = settings.noise_every;
  t.read = [&samples](std::int64_t number, std::int32_t* out) {
    if (const Status read = samples.read(number, out); !read) throw RunFailure(read.error());
  };
  return t;
}

std::string flight_folder_of(const RunSettings& settings) {
  if (!settings.flight_recorder.empty() || settings.checkpoint_dir.empty())
    return settings.flight_recorder;
  return settings.checkpoint_dir + "/flight";
}

}  // namespace echelon
