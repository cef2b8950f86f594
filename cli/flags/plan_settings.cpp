#include "cli/flags/plan_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "cli/flags/constraints.hpp"
#include "core/base/saturated_product.hpp"
#include "core/plan/plan_fields.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "planner/space/plan_from_constraints.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

namespace {

/// The request with the constraints of `plan`; an error if the flags cannot be read.
Result<PlanRequest> with_plan(const PlanRequest& request, const Settings& plan) {
  const Result<PlanConstraints> pinned = constraints_of(plan);
  if (!pinned) return pinned.error();
  PlanRequest out = request;
  out.constraints = *pinned;
  return out;
}

bool is_legal(const PlanRequest& request, const Settings& plan) {
  const Result<PlanRequest> with = with_plan(request, plan);
  return with && plan_from_constraints(*with);
}

std::optional<int> degree_of(const Settings& plan, const char* flag) {
  const Result<PlanConstraints> pinned = constraints_of(plan);
  const PlanField* field = plan_field_of(flag);
  if (!pinned || field == nullptr || !pinned->has(*field)) return {};
  const auto* member = std::get_if<int ParallelPlan::*>(&field->member);
  return member != nullptr ? std::optional(pinned->values().**member) : std::nullopt;
}

void set_flag(Settings& settings, const std::string& flag, std::string text) {
  settings.set(flag, {std::move(text), "--" + flag});
}

/// `plan` with `flag` set and the values that follow from it freed, except locked ones.
Settings plainly_edited(const Settings& plan, const std::string& flag, const std::string& text,
                        const std::set<std::string>& locked) {
  Settings change;
  set_flag(change, flag, text);
  const Result<PlanConstraints> before = constraints_of(plan);
  const Result<PlanConstraints> changes = constraints_of(change);
  Settings out = plan;
  set_flag(out, flag, text);
  if (!before || !changes) return out;
  out = settings_of(changed_by(*before, *changes));
  for (const std::string& kept : locked) {
    const Setting* setting = plan.find(kept);
    if (kept != flag && setting != nullptr) out.set(kept, *setting);
  }
  return out;
}

/// `plan` with pp, tp or cp changed so that the product of the degrees is the number of GPUs again.
Settings balanced(const PlanRequest& request, const Settings& plan,
                  const std::set<std::string>& locked) {
  const std::int64_t gpus = request.cluster.gpus();
  for (const char* flag : {"pp", "tp", "cp"}) {
    if (locked.contains(flag)) continue;
    std::int64_t others = degree_of(plan, "dp").value_or(1);
    for (const char* other : {"pp", "tp", "cp"}) {
      if (std::string_view(other) != flag) {
        others = saturated_product({others, degree_of(plan, other).value_or(1)});
      }
    }
    if (others <= 0 || gpus % others != 0) continue;
    std::set<std::string> kept = locked;
    kept.insert("dp");
    Settings tried = plainly_edited(plan, flag, std::to_string(gpus / others), kept);
    if (is_legal(request, tried)) return tried;
  }
  return plan;
}

}  // namespace

Settings settings_of(const PlanConstraints& pinned) {
  ParallelPlan plan = pinned.values();
  for (const PlanField& field : plan_fields()) {  // in a list, only pinned entries are on
    if (field.kind == PlanFieldKind::listed && !pinned.has(field)) {
      plan.*std::get<bool ParallelPlan::*>(field.member) = false;
    }
  }
  Settings out;
  for (const PlanField& field : plan_fields()) {
    if (pinned.has(field)) set_flag(out, std::string(field.flag), flag_text(field, plan));
  }
  return out;
}

Settings settings_of(const ParallelPlan& plan) { return settings_of(pinned_to(plan)); }

Settings edited(const PlanRequest& request, const Settings& plan, const std::string& flag,
                const std::string& text, const std::set<std::string>& locked) {
  if (text.empty()) {
    Settings out = plan;
    out.erase(flag);
    return out;
  }
  Settings out = plainly_edited(plan, flag, text, locked);
  if (flag == "dp" && degree_of(out, "dp") && !is_legal(request, out)) {
    return balanced(request, out, locked);
  }
  return out;
}

std::vector<SliderTick> slider_ticks_of(const PlanRequest& request, const Settings& plan,
                                        const std::string& flag,
                                        const std::set<std::string>& locked) {
  std::vector<SliderTick> stops;
  const PlanField* field = plan_field_of(flag);
  if (field == nullptr) return stops;
  const Result<PlanConstraints> pinned = constraints_of(plan);
  const ParallelPlan others = pinned ? pinned->values() : ParallelPlan{};
  for (const std::int64_t value : values_to_offer(request, others, *field)) {
    const Settings tried = edited(request, plan, flag, std::to_string(value), locked);
    stops.push_back({static_cast<int>(value), is_legal(request, tried)});
  }
  return stops;
}

Settings without_defaults(const PlanRequest& request, Settings all) {
  const auto plan_of = [&](const Settings& settings) -> std::optional<ParallelPlan> {
    const Result<PlanRequest> with = with_plan(request, settings);
    if (!with) return {};
    const Result<ParallelPlan> plan = plan_from_constraints(*with);
    return plan ? std::optional(*plan) : std::nullopt;
  };
  const std::optional<ParallelPlan> wanted = plan_of(all);
  if (!wanted) return all;
  // From the end: in the table, a field comes after those that its default depends on.
  const auto fields = plan_fields();
  for (auto field = fields.rbegin(); field != fields.rend(); ++field) {
    const std::string_view flag = field->flag;
    const Setting* setting = all.find(flag);
    if (setting == nullptr || &*field != plan_field_of(flag)) continue;
    const Setting before = *setting;
    all.erase(flag);
    if (plan_of(all) != wanted) all.set(flag, before);
  }
  return all;
}

std::string flag_of(const Error& error) {
  if (!error.where.starts_with("--")) return {};
  return error.where.substr(2, error.where.find_first_of(": ") - 2);
}

}  // namespace echelon::cli
