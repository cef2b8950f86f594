// A filter over the plans of a search: "tp=8 step<2s fits" (core/base/filter_terms.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/filter_terms.hpp"
#include "core/base/result.hpp"
#include "planner/economics.hpp"
#include "planner/search/ranked_plans.hpp"

namespace echelon::cli {

/// Conditions a plan must meet, all of them. An empty filter keeps every plan.
///
///   tp=8  dp>=16  zero!=3        degrees() of report/metrics.hpp
///   step<2s  memory<=70GiB       figures: step tokens mfu memory headroom cost token-cost
///   mfu>40%  fits>=90%                    fits gpu-hours energy gpus
///   recompute=none  schedule=1f1b  sp=yes
///   fits  front  tied            properties of the plan
///   anything else                a part of the plan in words: "interleaved", "mixed"
class PlanFilter {
 public:
  PlanFilter() = default;
  /// Errors name `where`: unknown name (nearest offered), a value that is none, text compared by
  /// order.
  [[nodiscard]] static Result<PlanFilter> parse(std::string_view text, std::string_view where);

  /// A figure that is unknown meets no condition. `money` is economics_of() the plan.
  [[nodiscard]] bool keeps(const RankedPlan& plan, const PlanRequest& request,
                           const Economics& money) const;

 private:
  enum class Kind { degree, figure, recompute, schedule, sequence_parallel, holds, words };
  struct Condition {
    Kind kind = Kind::words;
    std::size_t index = 0;  ///< in degrees() or figures()
    FilterComparison comparison = FilterComparison::equal;
    double number = 0;
    std::string text;  ///< in small letters
  };
  [[nodiscard]] static Result<Condition> condition_of(const FilterTerm& term,
                                                      std::string_view where);
  [[nodiscard]] static Status read_choice(const FilterTerm& term, std::string_view where,
                                          Condition& condition);
  [[nodiscard]] static Result<double> parse_number(const Condition& condition,
                                                   std::string_view text, std::string_view where);
  [[nodiscard]] static bool meets(const Condition& condition, const RankedPlan& plan,
                                  const PlanRequest& request, const Economics& money);

  std::vector<Condition> conditions_;
};

}  // namespace echelon::cli
