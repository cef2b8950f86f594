// How a job is run beyond its steps, and what a search is to find.
#pragma once

#include <optional>
#include <string_view>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "core/run/run_goodput.hpp"

namespace echelon {

/// The objective that a search minimizes. Meaning of each, and why the search is exact:
/// planner/search/optimize.hpp.
enum class Objective { step_time, cost, memory_headroom, goodput };
[[nodiscard]] std::string_view name_of(Objective objective);  ///< "step-time", ...
[[nodiscard]] Result<Objective> parse_objective(std::string_view name, std::string_view where);

/// How much risk and complexity a plan may have to be chosen: planner/space/score.hpp.
enum class Preference { robust, balanced, fastest };
[[nodiscard]] std::string_view name_of(Preference preference);  ///< "robust", ...
[[nodiscard]] Result<Preference> parse_preference(std::string_view name, std::string_view where);

/// What a run, and those before it, have measured on so many nodes.
struct PastRun {
  MeasuredGoodput goodput;
  int nodes = 1;
};

/// Failures, checkpoints and the critical batch size. Unset values are taken from the measured run,
/// then from the machine or from the defaults below; where none has one, it stays unknown.
struct TrainingEconomics {
  std::optional<Seconds> mtbf_per_node{};                ///< mean time between failures of one node
  std::optional<BytesPerSecond> checkpoint_bandwidth{};  ///< of the whole job to its storage; else
                                                         ///< ClusterTopology::storage_bandwidth()
  std::optional<Seconds> restart{};        ///< from a failure until the job computes again
  std::optional<double> critical_batch{};  ///< tokens
  std::optional<Dollars> gpu_hour{};       ///< price of one; else that of the cluster's description
  std::optional<PastRun> measured{};
};

/// Assumed: 10 minutes, the restart time of Daly's examples (2006, figures 3 to 5).
inline constexpr Seconds kRestart{600};

}  // namespace echelon
