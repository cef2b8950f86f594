// Metrics of plans: value, formula and text of each. Tables, charts, filters and CSV files take
// their columns from here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "planner/economics.hpp"
#include "planner/search/search.hpp"

namespace echelon {

enum class Metric {
  step,
  tokens_per_second,
  mfu,
  memory,
  headroom,
  fits,
  usd_per_step,
  usd_per_million_tokens,
  gpu_hours_per_step,
  kwh_per_step,
  gpus
};

struct MetricInfo {
  Metric figure{};
  std::string_view key;      ///< in filters: "memory"
  std::string_view column;   ///< in CSV files, with the unit of value_of(): "peak_reserved_bytes"
  std::string_view title;    ///< "peak memory"
  std::string_view formula;  ///< its formula, and where that is described
  bool less_is_better = true;
};
/// In the order of the enumeration.
[[nodiscard]] std::span<const MetricInfo> metrics();
[[nodiscard]] const MetricInfo& info_of(Metric figure);

/// In seconds, bytes, US dollars, hours, kWh; a ratio for mfu and fits. Nothing if the price, the
/// board power, or the probability of fitting is unknown.
/// `money` is economics_of(request, time of the candidate).
[[nodiscard]] std::optional<double> value_of(Metric figure, const PlanRequest& request,
                                             const Candidate& candidate, const Economics& money);
/// "5.83 s", "61.2 GiB", "47.5 %".
[[nodiscard]] std::string format(Metric figure, double value);

/// One unit for a whole axis whose largest value is `largest`: value / scale is what is shown.
struct MetricScale {
  double scale = 1;
  std::string_view unit;  ///< "ms"; "" for counts
};
[[nodiscard]] MetricScale scale_of(Metric figure, double largest);

/// A whole number of a plan: tp, pp, dp ... From core/plan/plan_fields.hpp, without groups.
struct Degree {
  std::string_view name;     ///< its name in tables, filters and flags
  std::string_view meaning;  ///< in a few words
  int ParallelPlan::*field = nullptr;
  bool always_shown = false;  ///< in a table also where it is 1 in all plans
};
[[nodiscard]] std::span<const Degree> degrees();

}  // namespace echelon
