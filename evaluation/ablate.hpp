// Ablation: the effect of each term of the cost model on the errors for measured runs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evaluation/fit.hpp"

namespace echelon {

/// One term, and the change that removes it: rates, or a simpler structure.
struct AblationTerm {
  std::string_view name;
  std::string_view what;  ///< one line
  std::vector<PinnedRate> pinned{};
  AblatedFeature ablated = AblatedFeature::nothing;
};
[[nodiscard]] const std::vector<AblationTerm>& ablation_terms();

/// Mean |error| out of fold over the rows on which the term matters: those whose prediction it
/// changes by more than 1 % while everything else stays.
struct AblatedTerm {
  std::string_view name, what;
  int rows = 0;
  double with_term = 0;
  double without_term = 0;  ///< with all other rates refitted
};

/// Fits the table's folds once with all terms and once without each. Rows flagged for time are left
/// out. A term that varies on no row has rows = 0: then its effect is unknown.
/// `whole` is fit_folds(rows, parts).
[[nodiscard]] std::vector<AblatedTerm> ablate(const std::vector<MeasuredRun>& rows,
                                              const FoldedFit& whole,
                                              const FitProgress& progress = {});

}  // namespace echelon
