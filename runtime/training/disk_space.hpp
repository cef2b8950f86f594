// The disk space that a run will take, checked before its first step.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan_file.hpp"
#include "core/run/run_settings.hpp"
#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/training/start_point.hpp"

namespace echelon {

[[nodiscard]] KeepPolicy keep_of(const RunSettings& settings);

/// Creates the folder of checkpoints, and checks that it can be written and that its disk, and that
/// of the export, have space for what the run keeps at a time. The error has the needed and the
/// free bytes. Where a policy that keeps more and more (--keep-last 0, --keep-every) will fill the
/// disk only later, that is a note. By one process.
[[nodiscard]] Result<std::vector<std::string>> check_space(const PlanFile& plan,
                                                           const StateFormat& format,
                                                           const RunSettings& settings,
                                                           const StartPoint& start,
                                                           const Disk& disk);

}  // namespace echelon
