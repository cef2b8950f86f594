// Calibrations of single software releases: they predict measured runs, planning never reads them.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "costmodel/calibration/calibration.hpp"

namespace echelon {

/// All calibrations of a folder (NAME.json each holds the calibration NAME), sorted by name, as
/// scripts/calibrations.sh fits them: hopper-megatron-core-nemo.json, hopper-megatron-core-nemo-
/// 25.04.json. Errors: no such folder, no calibration in it, a file that cannot be read or has
/// another name than its calibration.
[[nodiscard]] Result<std::vector<Calibration>> load_release_calibrations(const std::string& folder);

/// The folder next to a table of runs: "tests/validation/calibrations" of
/// "tests/validation/runs.csv"; "" if there is none.
[[nodiscard]] std::string release_calibrations_next_to(const std::string& table);

}  // namespace echelon
