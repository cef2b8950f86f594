// What a run reads before it starts, and what follows from it.
#pragma once

#include <string>

#include "core/plan/plan_file.hpp"
#include "core/run/run_settings.hpp"
#include "core/schedule/schedule.hpp"
#include "runtime/io/data/samples.hpp"
#include "runtime/training/training_device.hpp"

namespace echelon {

/// The plan's program. Error: it is invalid or not of this plan.
[[nodiscard]] Result<Schedule> schedule_of(const PlanFile& plan, const std::string& path);
/// The samples of --data. Errors name the flag.
[[nodiscard]] Result<Samples> samples_of(const PlanFile& plan, const RunSettings& settings);
/// The longest wait of a rank: that of the settings, or 20 predicted steps, at least a minute.
[[nodiscard]] Seconds timeout_of(const PlanFile& plan, const RunSettings& settings);
/// … before the first step, if that is longer.
[[nodiscard]] Seconds start_up_of(const RunSettings& settings);
/// The same after a measured step: that of the settings, or 10 such steps. It only raises the first
/// one: predictions of other machines, or under load, may be far too short.
[[nodiscard]] Seconds timeout_after(const RunSettings& settings, Seconds step);
/// What the training needs of plan and settings; `samples` must outlive it.
[[nodiscard]] Training training_of(const PlanFile& plan, const RunSettings& settings,
                                   const LearningRate& rate, const Samples& samples);

/// Where the flight records lie: --flight-recorder, or beside the checkpoints; empty: nowhere.
[[nodiscard]] std::string flight_folder_of(const RunSettings& settings);

}  // namespace echelon
