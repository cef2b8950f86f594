// Defaults of the software of a measured run for columns that its table leaves blank.
#pragma once

#include "core/base/result.hpp"
#include "core/framework/framework.hpp"
#include "core/plan/job.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// The software of a row: the framework that stands for it, and its defaults for blank columns.
/// Both point into the tables of core/framework/.
struct Software {
  const Framework* framework;
  const FrameworkDefaults* defaults;
  bool related = false;  ///< by a part of its name alone: a fork or another release
};

/// The software behind a row: by its name, and by `framework_detail` or `locator` where the
/// releases of one name differ; else by the longest known name within its own ("nemo-mlperf-v5"),
/// of several years by the year in the name or of the software's first row ("megatron-2022"). An
/// unknown software is treated like the one that all its rows of the table resemble: not
/// `same_code`, and `why` gives the reason. So all rows of one name have one framework, but for the
/// releases of a known one.
[[nodiscard]] Software software_of(const MeasuredRun& row);

/// The precision recipe of a row: the framework's own bytes per parameter, changed where the row
/// says so (compute dtype, fp32 weights under autocast, gradients kept and reduced in bf16).
/// Error: a format this version does not price.
[[nodiscard]] Result<PrecisionRecipe> recipe_of(const MeasuredRun& row, const Software& software);

}  // namespace echelon
