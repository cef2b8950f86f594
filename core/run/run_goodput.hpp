// MeasuredGoodput: what checkpoints and failures have cost a training, over all its starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon {

/// One start of a training. Times are seconds since 1970.
struct RunStart {
  double began = 0;  ///< the process of rank 0
  std::optional<double>
      computes;          ///< its first step: checkpoint and data are read, all have joined
  double last_seen = 0;  ///< rank 0, within a second
  std::string end;       ///< "completed", "interrupted", the kind of failure; "": unsaid
  /// By the machine or a defect; nobody asked for it, and the same input may succeed. Whoever is
  /// killed does not say how it ended.
  [[nodiscard]] bool failed() const;
  bool operator==(const RunStart&) const = default;
};

/// Measured by runs, this one and those before it that share its folder of checkpoints.
struct MeasuredGoodput {
  // Of this run, means over its checkpoints that became complete.
  std::int64_t checkpoints = 0;
  Bytes checkpoint;  ///< weights, master weights and moments
  Seconds write;     ///< from the end of its step until it is complete
  Seconds stall;     ///< of that, time in which no rank computes; less if it is asynchronous
  // Of all starts of the training.
  std::int64_t starts = 0;
  std::int64_t failures = 0;  ///< starts that ended with one
  Seconds running;            ///< sum over the starts, from their begin until they were last seen
  std::int64_t restarts = 0;  ///< starts after a failed one that came to their first step
  Seconds restart;            ///< median of them: from the failed one's last sign until that step

  /// Total time at risk / failures: the maximum-likelihood estimate for a constant rate. None
  /// without a failure.
  [[nodiscard]] std::optional<Seconds> time_between_failures() const;
  bool operator==(const MeasuredGoodput&) const = default;
};

/// Its second part, from the starts of a training in their order.
[[nodiscard]] MeasuredGoodput goodput_of_starts(const std::vector<RunStart>& starts);

/// The file with the starts.
[[nodiscard]] std::string run_starts_to_json(const std::vector<RunStart>& starts);
[[nodiscard]] Result<std::vector<RunStart>> parse_run_starts(std::string_view json,
                                                             std::string_view where);

}  // namespace echelon
