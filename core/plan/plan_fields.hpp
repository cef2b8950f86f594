// The fields of a plan, each once: whoever compares, prints or writes all of a plan walks this
// table. It is complete by construction: a member of ParallelPlan without a row does not compile.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/plan/parallel_plan.hpp"

namespace echelon {

using PlanMember =
    std::variant<int ParallelPlan::*, bool ParallelPlan::*, double ParallelPlan::*,
                 CpComm ParallelPlan::*, Recompute ParallelPlan::*, ScheduleKind ParallelPlan::*,
                 RankOrder ParallelPlan::*, std::vector<int> ParallelPlan::*,
                 std::optional<Bytes> ParallelPlan::*>;

struct PlanField {
  std::string_view key;    ///< in CSV and in the constraints of JSON: "zero_group_size"
  std::string_view flag;   ///< without dashes: "zero-group-size"; the three overlaps share one
  std::string_view label;  ///< in comparisons: "shard group"
  PlanMember member;

  template <class T>
  [[nodiscard]] bool is(T ParallelPlan::*other) const {
    const auto* mine = std::get_if<T ParallelPlan::*>(&member);
    return mine != nullptr && *mine == other;
  }
};

/// All members of ParallelPlan, degrees first.
[[nodiscard]] std::span<const PlanField> plan_fields();

/// The value as text that says all of it: "4", "true", "a2a", "16,16", "0.5"; "" where it is empty.
[[nodiscard]] std::string value_text(const PlanField& field, const ParallelPlan& plan);
/// What to write behind the field's flag: as above, but "optimizer=0.5" and "dp,pp".
[[nodiscard]] std::string flag_text(const PlanField& field, const ParallelPlan& plan);

[[nodiscard]] bool same_value(const PlanField& field, const ParallelPlan& a, const ParallelPlan& b);

/// Fields in which two plans differ, in the table's order; none: the plans are equal.
[[nodiscard]] std::vector<const PlanField*> differing_fields(const ParallelPlan& a,
                                                             const ParallelPlan& b);
/// The same without those that follow by default from another one that differs: layers per stage
/// from pp, the shard group from dp, the schedule from vpp … Of plans that differ at least one
/// remains.
[[nodiscard]] std::vector<const PlanField*> chosen_differences(const ParallelPlan& a,
                                                               const ParallelPlan& b);

}  // namespace echelon
