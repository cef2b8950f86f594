#include "core/plan/plan_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace echelon {
namespace {

using P = ParallelPlan;

constexpr std::array<PlanField, 23> kPlanFields = {{
    {"tp", "tp", "tp", &P::tp},
    {"cp", "cp", "cp", &P::cp},
    {"ep", "ep", "ep", &P::ep},
    {"etp", "etp", "etp", &P::etp},
    {"pp", "pp", "pp", &P::pp},
    {"vpp", "vpp", "vpp", &P::vpp},
    {"dp", "dp", "dp", &P::dp},
    {"microbatch", "microbatch", "microbatch", &P::microbatch},
    {"zero", "zero", "ZeRO", &P::zero},
    {"zero_group_size", "zero-group-size", "ZeRO group size", &P::shard_group},
    {"sequence_parallel", "sequence-parallel", "sequence parallel", &P::sequence_parallel},
    {"recompute", "recompute", "recompute", &P::recompute},
    {"recompute_layers", "recompute-layers", "recomputed layers", &P::recompute_layers},
    {"selective_layers", "selective-layers", "selectively recomputed layers", &P::selective_layers},
    {"schedule", "schedule", "schedule", &P::schedule},
    {"layers_per_stage", "layers-per-stage", "layers per stage", &P::layers_per_stage},
    {"cp_comm", "cp-comm", "cp communication", &P::cp_comm},
    {"rank_order", "rank-order", "rank order", &P::rank_order},
    {"offload_optimizer", "offload", "offloaded optimizer", &P::offload_optimizer},
    {"overlap_dp", "overlap", "overlap of dp", &P::overlap_dp},
    {"overlap_tp", "overlap", "overlap of tp", &P::overlap_tp},
    {"overlap_pp", "overlap", "overlap of pp", &P::overlap_pp},
    {"bucket", "bucket", "gradient bucket", &P::bucket},
}};

/// A member more or less does not compile here: add its row to the table above.
constexpr std::size_t members_of_a_plan() {
  const P plan{};
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v,
                                w] = plan;
  return 23;
}

constexpr bool all_distinct() {
  for (std::size_t i = 0; i < kPlanFields.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (kPlanFields[i].member == kPlanFields[j].member) return false;
    }
  }
  return true;
}

static_assert(members_of_a_plan() == kPlanFields.size(), "a row for every member");
static_assert(all_distinct(), "one row for every member");

std::string text_of(int value) { return std::to_string(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::vector<int>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}
std::string text_of(const std::optional<Bytes>& bytes) {
  return bytes ? fmt::format("{:.0f}", bytes->in(kByte)) : std::string();
}
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
  if (field.is(&P::sequence_parallel)) return a.tp != b.tp && (a.tp == 1 || b.tp == 1);
  if (field.is(&P::recompute_layers) || field.is(&P::selective_layers)) return both(counts_follow);
  if (field.is(&P::schedule)) {
    return both([](const P& p) {
      return p.schedule == (p.vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b);
    });
  }
  if (field.is(&P::layers_per_stage)) return a.pp != b.pp || a.vpp != b.vpp;
  if (field.is(&P::cp_comm)) return a.cp != b.cp && b.cp == 1;
  if (field.is(&P::overlap_pp)) {
    return both([](const P& p) { return p.overlap_pp == (p.vpp > 1); });
  }
  return false;
}

}  // namespace

std::span<const PlanField> plan_fields() { return kPlanFields; }

std::string value_text(const PlanField& field, const ParallelPlan& plan) {
  return std::visit([&](auto member) { return text_of(plan.*member); }, field.member);
}

std::string flag_text(const PlanField& field, const ParallelPlan& plan) {
  if (field.is(&P::offload_optimizer)) return "optimizer=" + value_text(field, plan);
  if (field.flag != "overlap") return value_text(field, plan);
  std::string axes;
  for (const auto& [name, on] : {std::pair("dp", plan.overlap_dp), std::pair("tp", plan.overlap_tp),
                                 std::pair("pp", plan.overlap_pp)}) {
    if (on) axes += (axes.empty() ? "" : ",") + std::string(name);
  }
  return axes.empty() ? "none" : axes;
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
