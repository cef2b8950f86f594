#include "cli/flags/plan_settings.hpp"
#include "cli/commands/command_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "cli/flags/constraints.hpp"
#include "core/base/saturated_product.hpp"
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
  const Setting* setting = plan.find(flag);
  if (!pinned || setting == nullptr) return {};
  for (const auto& [name, value] :
       {std::pair("tp", pinned->tp), std::pair("cp", pinned->cp), std::pair("pp", pinned->pp),
        std::pair("dp", pinned->dp), std::pair("ep", pinned->ep)}) {
    if (std::string_view(name) == flag) return value;
  }
  return {};
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

/// The same after one of pp, tp, cp makes up for a dp that does not suit the GPUs.
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

std::vector<std::int64_t> values_of(const PlanRequest& request, const Settings& plan,
                                    const std::string& flag) {
  const std::int64_t gpus = request.cluster.gpus();
  const auto degree = [&](const char* name) -> std::int64_t {
    return std::max(1, degree_of(plan, name).value_or(1));
  };
  const auto up_to = [](std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> values(
        static_cast<std::size_t>(std::max<std::int64_t>(0, last - first + 1)));
    std::iota(values.begin(), values.end(), first);
    return values;
  };
  if (flag == "tp" || flag == "cp" || flag == "dp" || flag == "pp") {
    std::vector<std::int64_t> values = divisors(gpus);
    const std::int64_t most = flag == "tp"   ? request.model.heads
                              : flag == "pp" ? request.model.layers + 2
                              : flag == "cp" ? request.job.sequence
                                             : gpus;
    std::erase_if(values, [&](std::int64_t value) { return value > most; });
    return values;
  }
  if (flag == "ep") return divisors(std::max(1, request.model.moe.experts));
  if (flag == "etp") {
    std::vector<std::int64_t> values = divisors(
        request.model.moe.experts > 0 ? std::max(1, request.model.moe.expert_ffn_hidden) : 1);
    std::erase_if(values, [&](std::int64_t v) { return v > request.cluster.gpus_per_node(); });
    return values;
  }
  if (flag == "vpp")
    return up_to(1, std::max<std::int64_t>(1, request.model.layers / degree("pp")));
  if (flag == "zero") return up_to(0, 3);
  if (flag == "microbatch") {
    const std::int64_t samples = request.job.global_batch;
    const std::int64_t dp = degree("dp");
    return divisors(samples % dp == 0 ? samples / dp : samples);
  }
  if (flag == "zero-group-size") {
    const std::int64_t data = saturated_product({degree("dp"), degree("cp")});
    return data <= gpus ? divisors(data) : std::vector<std::int64_t>{};
  }
  return {};
}

}  // namespace

Settings settings_of(const PlanConstraints& pinned) {
  Settings out;
  const auto number = [&](const char* flag, const auto& value) {
    if (value) set_flag(out, flag, fmt::format("{}", *value));
  };
  const auto name = [&](const char* flag, const auto& value) {
    if (value) set_flag(out, flag, std::string(name_of(*value)));
  };
  const auto list = [&](const char* flag, const std::optional<std::vector<int>>& values) {
    if (values) set_flag(out, flag, fmt::format("{}", fmt::join(*values, ",")));
  };
  number("tp", pinned.tp);
  number("cp", pinned.cp);
  number("ep", pinned.ep);
  number("etp", pinned.etp);
  number("dp", pinned.dp);
  number("pp", pinned.pp);
  number("vpp", pinned.vpp);
  number("microbatch", pinned.microbatch);
  number("zero", pinned.zero);
  number("zero-group-size", pinned.shard_group);
  number("sequence-parallel", pinned.sequence_parallel);
  name("cp-comm", pinned.cp_comm);
  name("rank-order", pinned.rank_order);
  if (pinned.offload_optimizer) {
    set_flag(out, "offload", fmt::format("optimizer={}", *pinned.offload_optimizer));
  }
  name("recompute", pinned.recompute);
  list("recompute-layers", pinned.recompute_layers);
  list("selective-layers", pinned.selective_layers);
  list("layers-per-stage", pinned.layers_per_stage);
  name("schedule", pinned.schedule);
  if (pinned.bucket) set_flag(out, "bucket", fmt::format("{:.0f}", pinned.bucket->in(kByte)));
  if (pinned.overlap_dp || pinned.overlap_tp || pinned.overlap_pp) {
    std::vector<const char*> axes;
    if (pinned.overlap_dp.value_or(false)) axes.push_back("dp");
    if (pinned.overlap_tp.value_or(false)) axes.push_back("tp");
    if (pinned.overlap_pp.value_or(false)) axes.push_back("pp");
    set_flag(out, "overlap", axes.empty() ? "none" : fmt::format("{}", fmt::join(axes, ",")));
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
  for (const std::int64_t value : values_of(request, plan, flag)) {
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
  // Lists first: they are the longest, and follow from the degrees; degrees above 1 stay.
  for (const char* flag : {"layers-per-stage",
                           "recompute-layers",
                           "selective-layers",
                           "overlap",
                           "bucket",
                           "rank-order",
                           "cp-comm",
                           "offload",
                           "schedule",
                           "sequence-parallel",
                           "zero-group-size",
                           "recompute",
                           "etp",
                           "ep",
                           "vpp",
                           "cp",
                           "zero",
                           "dp",
                           "tp",
                           "pp",
                           "microbatch"}) {
    const Setting* setting = all.find(flag);
    if (setting == nullptr) continue;
    const Setting before = *setting;
    all.erase(flag);
    if (plan_of(all) != wanted) all.set(flag, before);
  }
  return all;
}

std::string command_of(std::string_view command_name, const Settings& settings) {
  std::string out = command_name == "search" ? "plan" : "plan " + std::string(command_name);
  const Command* command = find_command(command_name);
  for (const Flag& flag : flags()) {  // in the order help lists them
    const Setting* setting = settings.find(flag.name);
    const bool shown = (flag.groups & kOutput) == 0 && command != nullptr && takes(*command, flag);
    if (setting == nullptr || !shown) continue;
    if (!flag.value.empty()) {
      out += fmt::format(" --{} {}", flag.name, shell_quoted(setting->value));
      continue;
    }
    const Result<bool> on = parse_switch(*setting);
    if (on && (*on || flag.negatable)) out += fmt::format(" --{}{}", *on ? "" : "no-", flag.name);
  }
  return out;
}

std::string flag_of(const Error& error) {
  if (!error.where.starts_with("--")) return {};
  return error.where.substr(2, error.where.find_first_of(": ") - 2);
}

}  // namespace echelon::cli
