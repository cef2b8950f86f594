// The fields of a plan, each in one row: flag, JSON key, names for people, help, choices, kind.
// Whoever reads, writes, compares, pins or explains all of a plan walks this table: plan files,
// reports, flags, constraints, differences, CSV files, --why-not and the window's controls.
// A member of ParallelPlan without a row, or with two, does not compile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/parallel_plan.hpp"
#include "core/plan/plan_field_table.hpp"

namespace echelon {

inline constexpr std::size_t kPlanFields = plan_field_table::kRows.size();

namespace plan_field_table {

template <class Before>
consteval std::array<const PlanField*, kPlanFields> sorted(Before before) {
  std::array<const PlanField*, kPlanFields> out{};
  for (std::size_t i = 0; i < kPlanFields; ++i) {
    std::size_t at = i;
    for (; at > 0 && before(kRows[i], *out[at - 1]); --at) out[at] = out[at - 1];
    out[at] = &kRows[i];
  }
  return out;
}

/// Its place in the table; does not compile for what is no member of a plan.
template <auto member>
consteval std::size_t index_of() {
  std::size_t at = 0;
  while (!kRows[at].is(member)) ++at;
  return at;
}

template <class T, class Owner>
T value_type(T Owner::*);

}  // namespace plan_field_table

/// All members of ParallelPlan, degrees first.
[[nodiscard]] constexpr std::span<const PlanField> plan_fields() { return plan_field_table::kRows; }

/// All of them in the order of a plan's JSON.
inline constexpr std::array<const PlanField*, kPlanFields> kPlanFieldsInJson =
    plan_field_table::sorted(
        [](const PlanField& a, const PlanField& b) { return a.place_in_json < b.place_in_json; });
/// All of them in the order of help. Fields that share a flag stand together.
inline constexpr std::array<const PlanField*, kPlanFields> kPlanFieldsInHelp =
    plan_field_table::sorted(
        [](const PlanField& a, const PlanField& b) { return a.place_in_help < b.place_in_help; });

/// The row of a member: plan_field<&ParallelPlan::tp>.
template <auto member>
inline constexpr const PlanField& plan_field =
    plan_field_table::kRows[plan_field_table::index_of<member>()];

/// The type of a member's values.
template <auto member>
using PlanValue = decltype(plan_field_table::value_type(member));

[[nodiscard]] constexpr std::size_t index_of(const PlanField& field) {
  return static_cast<std::size_t>(&field - plan_field_table::kRows.data());
}

/// The first field with this flag; null where it is no flag of a plan.
[[nodiscard]] constexpr const PlanField* plan_field_of(std::string_view flag) {
  for (const PlanField* field : kPlanFieldsInHelp) {
    if (field->flag == flag) return field;
  }
  return nullptr;
}

/// Some fields of a plan.
class PlanFieldSet {
 public:
  constexpr void insert(const PlanField& field) { bits_ |= bit_of(field); }
  constexpr void erase(const PlanField& field) { bits_ &= ~bit_of(field); }
  [[nodiscard]] constexpr bool contains(const PlanField& field) const {
    return (bits_ & bit_of(field)) != 0;
  }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const PlanFieldSet&) const = default;

 private:
  static_assert(kPlanFields <= 64);
  static constexpr std::uint64_t bit_of(const PlanField& field) {
    return std::uint64_t{1} << index_of(field);
  }
  std::uint64_t bits_ = 0;
};

/// Takes the field's value from another plan.
void copy_value(const PlanField& field, const ParallelPlan& from, ParallelPlan& to);

/// The value as text that says all of it: "4", "true", "a2a", "16,16", "0.5"; "" where it is empty.
[[nodiscard]] std::string value_text(const PlanField& field, const ParallelPlan& plan);
/// What to write behind the field's flag: as above, but "optimizer=0.5" and "dp,pp".
[[nodiscard]] std::string flag_text(const PlanField& field, const ParallelPlan& plan);
/// Sets a field of kind `name` to what this name stands for; the error lists all names.
[[nodiscard]] Status set_name(const PlanField& field, std::string_view name, std::string_view where,
                              ParallelPlan& plan);

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
