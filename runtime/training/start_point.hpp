// StartPoint: where a run begins in its training: step, sample and learning rate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/run/run_settings.hpp"
#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/training/learning_rate.hpp"

namespace echelon {

struct StartPoint {
  std::int64_t step = 0;           ///< the first of this run
  std::int64_t end = 0;            ///< one past its last
  std::int64_t sample = 0;         ///< the first of that step
  LearningRate rate;               ///< in steps of this run's global batch, counted from sample 0
  RateSchedule schedule;           ///< the same for the next checkpoint
  std::vector<std::string> notes;  ///< for the user: what is resumed and how it differs

  /// Samples seen after `steps` steps of the training.
  [[nodiscard]] std::int64_t samples(std::int64_t steps, std::int64_t global_batch) const {
    return sample + (steps - step) * global_batch;
  }
};

/// `resumed`: null for a run from the start. Data go on with the next sample, also with another
/// global batch. Warm-up and decay keep their lengths in samples, unless their flags changed: then
/// they end at the step that the user names. Peak and minimum are the settings'.
/// Source of lengths in samples: Megatron-LM, megatron/core/optimizer_param_scheduler.py.
[[nodiscard]] StartPoint start_point(const RunSettings& settings, std::int64_t global_batch,
                                     const Progress* resumed);

}  // namespace echelon
