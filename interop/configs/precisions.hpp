// The precision of a format that is nearest to one that it has no settings for.
#pragma once

#include "core/plan/job.hpp"
#include "interop/configs/format.hpp"

namespace echelon {

/// Of the cases of a row of precisions the first with this precision, else the first with the
/// nearest: by the width of products, their scaling, the optimizer, where weights are kept, and the
/// bytes of all states, in this order. `cases` is not empty.
[[nodiscard]] const ConfigCase& nearest_precision(const std::vector<ConfigCase>& cases,
                                                  const PrecisionRecipe& wanted);

/// What differs, in words: "moments of 4 instead of 2.03 bytes per parameter"; "" for equal states.
[[nodiscard]] std::string precision_difference(const PrecisionRecipe& run,
                                               const PrecisionRecipe& wanted);

}  // namespace echelon
