// Two plans, or a measurement and its prediction, side by side: the rows shown in text and window.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan_file.hpp"

namespace echelon {

struct TimeDelta {
  std::string_view name;
  Seconds a;
  Seconds b;
};
/// Parts that at least one of the two has, then their sum, "step".
[[nodiscard]] std::vector<TimeDelta> part_deltas(const CostBreakdown& a, const CostBreakdown& b);

struct MemoryDelta {
  std::string_view name;
  Bytes a;
  Bytes b;
};
/// Parts that at least one of the two has, then their sum, "total".
[[nodiscard]] std::vector<MemoryDelta> part_deltas(const MemoryBreakdown& a,
                                                   const MemoryBreakdown& b);
/// … of the fullest stage of each, then "reserved", which includes the allocator's reserve.
[[nodiscard]] std::vector<MemoryDelta> fullest_stage_deltas(const Prediction& a,
                                                            const Prediction& b);

struct FieldDelta {
  std::string_view name;
  std::string a;
  std::string b;
};
/// The differences of requests and plans.
[[nodiscard]] std::vector<FieldDelta> field_deltas(const PlanFile& a, const PlanFile& b);

/// The parts of the jobs themselves that differ: model, sequence, global batch.
[[nodiscard]] std::vector<FieldDelta> job_deltas(const PlanFile& a, const PlanFile& b);

/// "B is 3.1 % faster: 402 k tokens/s for A, 415 k for B." Of different jobs neither is called
/// faster: "A and B are plans of different jobs (sequence 4,096 and 8,192): ..."
[[nodiscard]] std::string faster_of(const PlanFile& a, const PlanFile& b);

}  // namespace echelon
