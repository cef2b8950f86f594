// What each training software does when a table of runs does not say.
#pragma once

#include <string_view>

#include "core/base/result.hpp"
#include "core/framework/framework.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"
#include "planner/runs_io.hpp"

namespace echelon {

/// One software of the tables, the stack of ours that stands for it, and its defaults.
struct RunHabits {
  std::string_view software;  ///< as the column `stack` writes it
  std::string_view stack;     ///< ours
  bool same_code = true;      ///< `stack` is that software; false: the nearest we have
  std::string_view why;       ///< one line: why that stack
  Recompute recompute = Recompute::none;
  bool flash_attention = true;
  int zero = 0;
  double dropout = 0;            ///< hidden and attention dropout of its GPT recipes
  bool ends_hold_fewer = false;  ///< uneven stages: first and last one layer fewer
};

/// The habits behind a row. NeMo containers of 2022 are told from later ones by `stack_detail`. A
/// software nobody has described gets those of the one it evidently resembles: not `same_code`, and
/// `why` says so.
[[nodiscard]] RunHabits habits_of(const RunRow& row);

/// The precision recipe of a row: the stack's own bytes per parameter, changed where the row says
/// so (compute dtype, fp32 weights under autocast, gradients kept and reduced in bf16).
/// Error: a format this version does not price.
[[nodiscard]] Result<PrecisionRecipe> recipe_of(const RunRow& row, const RunHabits& habits,
                                                const Framework& stack);

}  // namespace echelon
