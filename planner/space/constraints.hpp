// PlanConstraints: the fields of a plan that a user pins, and their values.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "core/plan/parallel_plan.hpp"
#include "core/plan/plan_fields.hpp"

namespace echelon {

/// In a search whatever is not pinned is searched; `predict` fills the rest with defaults
/// (plan_from_constraints). Fields are named by their members: `pin<&ParallelPlan::tp>(8)`.
/// A list of recomputed layers holds one number for all stages, or one for each.
class PlanConstraints {
 public:
  /// What is pinned; fields that are not have the defaults of a plan.
  [[nodiscard]] const ParallelPlan& values() const { return values_; }
  [[nodiscard]] const PlanFieldSet& pinned() const { return pinned_; }

  [[nodiscard]] bool has(const PlanField& field) const { return pinned_.contains(field); }
  /// Any of these.
  template <auto... members>
  [[nodiscard]] bool has() const {
    return (pinned_.contains(plan_field<members>) || ...);
  }
  template <auto member>
  [[nodiscard]] std::optional<PlanValue<member>> get() const {
    if (!has<member>()) return std::nullopt;
    return values_.*member;
  }
  template <auto member>
  [[nodiscard]] PlanValue<member> value_or(PlanValue<member> otherwise) const {
    return has<member>() ? values_.*member : std::move(otherwise);
  }

  template <auto member>
  void pin(PlanValue<member> value) {
    if constexpr (std::is_same_v<PlanValue<member>, Recompute>)
      release<&ParallelPlan::recompute_modules>();
    values_.*member = std::move(value);
    pinned_.insert(plan_field<member>);
  }
  template <auto... members>
  void release() {
    (release(plan_field<members>), ...);
  }
  /// To its value in this plan. A plan without gradient buckets pins none of their sizes, one
  /// without modules none of them; and a policy of recomputation releases those pinned before.
  void pin(const PlanField& field, const ParallelPlan& plan) {
    if (field.is(&ParallelPlan::recompute)) release<&ParallelPlan::recompute_modules>();
    copy_value(field, plan, values_);
    pinned_.insert(field);
    const bool may_be_none =
        field.kind == PlanFieldKind::size || field.kind == PlanFieldKind::modules;
    if (may_be_none && value_text(field, plan).empty()) pinned_.erase(field);
  }
  void release(const PlanField& field) {
    copy_value(field, ParallelPlan{}, values_);
    pinned_.erase(field);
  }
  /// Takes over all that `other` pins.
  void overlay(const PlanConstraints& other) {
    for (const PlanField& field : plan_fields()) {
      if (other.has(field)) pin(field, other.values_);
    }
  }

  bool operator==(const PlanConstraints&) const = default;

 private:
  ParallelPlan values_;
  PlanFieldSet pinned_;
};

}  // namespace echelon
