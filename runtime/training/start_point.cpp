#include "runtime/training/start_point.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

/// The sample at which a length of the schedule ends: that of the resumed run, or at `step`.
std::int64_t end_of(const StartPoint& start, std::int64_t global_batch, bool as_before,
                    std::int64_t before, std::int64_t step) {
  if (as_before) return before;
  return std::max<std::int64_t>(0, start.samples(step, global_batch));
}

void note_rates(const RateSchedule& now, const RateSchedule& before, StartPoint& start) {
  const auto note = [&](const char* flag, double value, double old) {
    if (value == old) return;
    start.notes.push_back(
        fmt::format("{}: {:g}; the run that is resumed had {:g}", flag, value, old));
  };
  note("--learning-rate", now.peak, before.peak);
  note("--min-lr", now.min, before.min);
}

}  // namespace

StartPoint start_point(const RunSettings& settings, std::int64_t global_batch,
                       const Progress* resumed) {
  StartPoint start;
  if (resumed != nullptr) {
    start.step = resumed->step;
    start.sample = resumed->samples;
  }
  const bool in_all = settings.resume == Resume::automatic;
  start.end = in_all ? std::max(start.step, settings.steps) : start.step + settings.steps;
  const RateSchedule* before = resumed != nullptr && resumed->rate ? &*resumed->rate : nullptr;
  RateSchedule& now = start.schedule;
  now.peak = settings.learning_rate;
  now.min = std::min(settings.min_lr, settings.learning_rate);
  now.warmup_steps = settings.warmup_steps;
  now.lr_decay_steps = settings.lr_decay_steps;
  now.warmup_samples =
      end_of(start, global_batch, before != nullptr && before->warmup_steps == now.warmup_steps,
             before != nullptr ? before->warmup_samples : 0, now.warmup_steps);
  now.decay_samples =
      end_of(start, global_batch, before != nullptr && before->lr_decay_steps == now.lr_decay_steps,
             before != nullptr ? before->decay_samples : 0,
             now.lr_decay_steps > 0 ? now.lr_decay_steps : start.end);
  const auto in_steps = [&](std::int64_t samples) {
    return static_cast<double>(samples) / static_cast<double>(global_batch);
  };
  start.rate = {.peak = now.peak,
                .min = now.min,
                .warmup = in_steps(now.warmup_samples),
                .total = in_steps(now.decay_samples)};
  if (resumed == nullptr) return start;
  if (resumed->global_batch > 0 && resumed->global_batch != global_batch) {
    start.notes.push_back(
        fmt::format("written with a global batch of {}, now {}: data and learning rate go on after "
                    "{} samples",
                    resumed->global_batch, global_batch, resumed->samples));
  }
  if (before != nullptr) {
    note_rates(now, *before, start);
  } else if (now.lr_decay_steps == 0) {
    start.notes.push_back(
        "its version holds no learning-rate schedule: the decay ends with the last step of this "
        "run; --lr-decay-steps sets another end");
  }
  const std::int64_t last = start.samples(start.end, global_batch);
  if (before != nullptr && now.decay_samples < last && now.lr_decay_steps == 0) {
    start.notes.push_back(
        fmt::format("the learning rate stays at {:g} from sample {} on, where the decay of the "
                    "resumed run ends; --lr-decay-steps sets another end",
                    now.min, now.decay_samples));
  }
  return start;
}

}  // namespace echelon
