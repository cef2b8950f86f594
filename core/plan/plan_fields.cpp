#include "core/plan/plan_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "core/base/expects.hpp"

namespace echelon {

namespace plan_field_table {
/// What every member of an aggregate can be initialized from.
struct Anything {
  template <class T>
  requires(!std::is_same_v<T, LayerSharding>) operator T()
      const;  // NOLINT(google-explicit-constructor)
};
}  // namespace plan_field_table

namespace {

using P = ParallelPlan;

template <class... Values>
concept initializes_own_members = requires {
  P{LayerSharding{}, std::declval<Values>()...};
};
template <std::size_t... I>
consteval bool has_own_members(std::index_sequence<I...>) {
  return initializes_own_members<decltype((void)I, plan_field_table::Anything{})...>;
}
/// Members of ParallelPlan that are not those of LayerSharding.
template <std::size_t count = 0>
consteval std::size_t own_members() {
  if constexpr (has_own_members(std::make_index_sequence<count + 1>{}))
    return own_members<count + 1>();
  else
    return count;
}

/// A member more or less does not compile here: count again, and add its row to the table.
consteval std::size_t members_of_a_sharding() {
  const LayerSharding sharding{};
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k] = sharding;
  return 11;
}

consteval std::size_t rows_in_layer_sharding() {
  return static_cast<std::size_t>(
      std::ranges::count(plan_fields(), true, &PlanField::in_layer_sharding));
}

template <class Same>
consteval bool all_distinct(Same same) {
  for (const PlanField& row : plan_fields()) {
    for (const PlanField& other : plan_fields()) {
      if (&row != &other && same(row, other)) return false;
    }
  }
  return true;
}

static_assert(own_members() + members_of_a_sharding() == kPlanFields, "a row for every member");
static_assert(rows_in_layer_sharding() == members_of_a_sharding(),
              "in_layer_sharding marks the members of LayerSharding");
static_assert(all_distinct([](const PlanField& a, const PlanField& b) {
                return a.member == b.member || a.key == b.key || a.label == b.label;
              }),
              "one row for every member");
static_assert(all_distinct([](const PlanField& a, const PlanField& b) {
                return a.place_in_json == b.place_in_json || a.place_in_help == b.place_in_help;
              }),
              "one place for every row");
static_assert(std::ranges::all_of(plan_fields(),
                                  [](const PlanField& field) {
                                    const PlanField& first = *plan_field_of(field.flag);
                                    return (&first == &field) == !field.help.empty();
                                  }),
              "help for every flag, in the first of its rows");

std::string text_of(int value) { return std::to_string(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::vector<int>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}
std::string text_of(const std::optional<Bytes>& bytes) {
  return bytes ? fmt::format("{:.0f}", bytes->in(kByte)) : std::string();
}
using echelon::text_of;  // of modules
template <class Enum>
requires std::is_enum_v<Enum> std::string text_of(Enum value) {
  return std::string(name_of(value));
}

/// Every stage's count follows from the policy: all of its layers, or none.
bool counts_follow(const P& plan) {
  const auto none = [](const std::vector<int>& counts) {
    return std::ranges::all_of(counts, [](int count) { return count == 0; });
  };
  if (!none(plan.selective_layers)) return false;
  if (plan.recompute == Recompute::full) return plan.recompute_layers == plan.layers_per_stage;
  return none(plan.recompute_layers);
}

/// Whether a difference follows by default from that of another field.
bool follows(const PlanField& field, const P& a, const P& b) {
  const auto both = [&](auto usual) { return usual(a) && usual(b); };
  if (field.is(&P::shard_group)) {
    return both([](const P& p) { return p.shard_group == std::int64_t{p.dp} * p.cp; });
  }
  if (field.is(&P::microbatch_group)) {
    return both([](const P& p) {
      return p.microbatch_group == (p.schedule == ScheduleKind::interleaved ? p.pp : 1);
    });
  }
  if (field.is(&P::sequence_parallel)) return a.tp != b.tp && (a.tp == 1 || b.tp == 1);
  if (field.is(&P::recompute_layers) || field.is(&P::selective_layers)) return both(counts_follow);
  if (field.is(&P::schedule)) {
    return both([](const P& p) {
      return p.schedule == (p.vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b);
    });
  }
  if (field.is(&P::layers_per_stage)) return a.pp != b.pp || a.vpp != b.vpp;
  if (field.is(&P::cp_comm)) return a.cp != b.cp && b.cp == 1;
  if (field.is(&P::dispatcher)) return a.ep != b.ep && (a.ep == 1 || b.ep == 1);
  if (field.is(&P::overlap_pp)) {
    return both([](const P& p) { return p.overlap_pp == (p.vpp > 1); });
  }
  return false;
}

}  // namespace

void copy_value(const PlanField& field, const ParallelPlan& from, ParallelPlan& to) {
  std::visit([&](auto member) { to.*member = from.*member; }, field.member);
}

std::string value_text(const PlanField& field, const ParallelPlan& plan) {
  return std::visit([&](auto member) { return text_of(plan.*member); }, field.member);
}

std::string flag_text(const PlanField& field, const ParallelPlan& plan) {
  if (field.kind == PlanFieldKind::share) {
    return std::string(field.part) + "=" + value_text(field, plan);
  }
  if (field.kind != PlanFieldKind::listed) return value_text(field, plan);
  std::string parts;
  for (const PlanField* each : kPlanFieldsInHelp) {
    if (each->flag != field.flag || value_text(*each, plan) != text_of(true)) continue;
    parts += (parts.empty() ? "" : ",") + std::string(each->part);
  }
  return parts.empty() ? "none" : parts;
}

Status set_name(const PlanField& field, std::string_view name, std::string_view where,
                ParallelPlan& plan) {
  const auto take = [](auto& value, const auto& parsed) -> Status {
    if (!parsed) return parsed.error();
    value = *parsed;
    return Done{};
  };
  return std::visit(
      [&](auto member) -> Status {
        auto& value = plan.*member;
        using Value = std::remove_reference_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, Recompute>) {
          return take(value, parse_recompute(name, where));
        } else if constexpr (std::is_same_v<Value, ScheduleKind>) {
          return take(value, parse_schedule(name, where));
        } else if constexpr (std::is_same_v<Value, CpComm>) {
          return take(value, parse_cp_comm(name, where));
        } else if constexpr (std::is_same_v<Value, Dispatcher>) {
          return take(value, parse_dispatcher(name, where));
        } else if constexpr (std::is_same_v<Value, CudaGraphs>) {
          return take(value, parse_cuda_graphs(name, where));
        } else if constexpr (std::is_same_v<Value, RankOrder>) {
          return take(value, parse_rank_order(name, where));
        } else {
          EXPECTS(!std::is_enum_v<Value>, "an enumeration that can be parsed");
          return Done{};
        }
      },
      field.member);
}

bool same_value(const PlanField& field, const ParallelPlan& a, const ParallelPlan& b) {
  return std::visit([&](auto member) { return a.*member == b.*member; }, field.member);
}

std::vector<const PlanField*> differing_fields(const ParallelPlan& a, const ParallelPlan& b) {
  std::vector<const PlanField*> out;
  for (const PlanField& field : plan_fields()) {
    if (!same_value(field, a, b)) out.push_back(&field);
  }
  return out;
}

std::vector<const PlanField*> chosen_differences(const ParallelPlan& a, const ParallelPlan& b) {
  const std::vector<const PlanField*> all = differing_fields(a, b);
  std::vector<const PlanField*> chosen = all;
  std::erase_if(chosen, [&](const PlanField* field) { return follows(*field, a, b); });
  return chosen.empty() ? all : chosen;
}

}  // namespace echelon
