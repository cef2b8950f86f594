// Pairs of plans that differ in exactly one field.
#pragma once

#include <type_traits>
#include <variant>
#include <vector>

#include "core/plan/plan_fields.hpp"

namespace echelon {

/// A plan in which every field can be changed.
inline ParallelPlan plain_plan() {
  ParallelPlan plan;
  plan.tp = plan.cp = plan.dp = plan.pp = 2;
  plan.zero = 1;
  plan.shard_group = 4;
  plan.sequence_parallel = true;
  plan.recompute = Recompute::full;
  plan.layers_per_stage = {16, 16};
  plan.recompute_layers = {8, 8};
  return plan;
}

/// `plan` with a different value of `field`.
inline ParallelPlan with_changed(const PlanField& field, ParallelPlan plan) {
  std::visit(
      [&](auto member) {
        auto& value = plan.*member;
        using Value = std::remove_reference_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) {
          value = !value;
        } else if constexpr (std::is_same_v<Value, int>) {
          value += 1;
        } else if constexpr (std::is_same_v<Value, double>) {
          value += 0.25;
        } else if constexpr (std::is_enum_v<Value>) {
          value = static_cast<Value>(value == Value{} ? 1 : 0);
        } else if constexpr (std::is_same_v<Value, std::vector<int>>) {
          if (value.empty()) value = {1, 2};
          value.front() += 1;
          value.back() -= 1;
        } else if constexpr (std::is_same_v<Value, RecomputeModules>) {
          value = value.empty() ? Value{RecomputeModule::layernorm, RecomputeModule::moe} : Value{};
        } else if constexpr (std::is_same_v<Value, OffloadModules>) {
          value = value.empty() ? Value{OffloadModule::core_attn, OffloadModule::moe_act} : Value{};
        } else {
          value = value ? Value() : Value(25_MB);
        }
      },
      field.member);
  return plan;
}

}  // namespace echelon
