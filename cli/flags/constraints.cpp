#include "cli/flags/constraints.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cli/flags/values.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "core/plan/plan_fields.hpp"
#include "planner/space/constraints_of_plan.hpp"

namespace echelon::cli {

namespace {

/// "dp,tp,pp" or "none": every field with this flag is on or off then.
Status read_listed(const PlanField& first, const Setting& setting, PlanConstraints& pinned) {
  std::vector<const PlanField*> fields;
  std::vector<std::string_view> parts;
  for (const PlanField* field : kPlanFieldsInHelp) {
    if (field->flag != first.flag) continue;
    fields.push_back(field);
    parts.push_back(field->part);
  }
  ParallelPlan plan;
  const auto set = [&](const PlanField& field, bool on) {
    plan.*std::get<bool ParallelPlan::*>(field.member) = on;
    pinned.pin(field, plan);
  };
  for (const PlanField* field : fields) set(*field, false);
  if (setting.value == "none") return Done{};
  std::string_view rest = setting.value;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find(','));
    const auto known = std::ranges::find(fields, part, &PlanField::part);
    if (known == fields.end()) {
      return input_error(
          setting.where, in_quotes(part),
          fmt::format("a list of {} and {}, or none",
                      fmt::join(parts.begin(), parts.end() - 1, ", "), parts.back()));
    }
    set(**known, true);
    if (part.size() == rest.size()) return Done{};
    rest.remove_prefix(part.size() + 1);
  }
}

/// "optimizer=0.5": share of the optimizer states kept in host memory.
Result<double> parse_share(const PlanField& field, const Setting& setting) {
  const std::string what = std::string(field.part) + "=";
  if (!std::string_view(setting.value).starts_with(what)) {
    return input_error(setting.where, in_quotes(setting.value),
                       what + "SHARE with a share from 0 to 1",
                       "activations and weights stay on the GPU in this version");
  }
  return parse_ratio(std::string_view(setting.value).substr(what.size()), setting.where, 0, 1);
}

Result<int> parse_whole(const PlanField& field, const Setting& setting) {
  const Result<int> value = parse_int(setting.value, setting.where, field.min);
  if (!value || field.max == 0 || *value <= field.max) return value;
  std::vector<int> allowed;
  for (int each = field.min; each < field.max; ++each) allowed.push_back(each);
  return input_error(setting.where, fmt::format("{} {}", field.label, *value),
                     fmt::format("{} or {}", fmt::join(allowed, ", "), field.max));
}

/// In whole bytes, as a plan file holds it. A small number without its unit was meant in MiB.
Result<Bytes> parse_bucket(const Setting& setting) {
  constexpr Bytes kMost{1e15};
  constexpr Bytes kLeastWithoutUnit = 1_KiB;
  const Result<Bytes> size = parse_bytes(setting.value, setting.where);
  const bool unit = setting.value.find_first_not_of("0123456789.") != std::string::npos;
  if (size && !unit && *size >= kByte && *size < kLeastWithoutUnit) {
    return input_error(
        setting.where,
        fmt::format("{} without a unit, {:g} bytes", in_quotes(setting.value), size->in(kByte)),
        "a size with its unit, for example 25MB",
        fmt::format("nearest valid: {} {}MiB", setting.where, setting.value));
  }
  if (!size || (*size >= kByte && *size <= kMost)) {
    return size ? Result(Bytes{std::floor(size->in(kByte))}) : size;
  }
  return input_error(setting.where, in_quotes(setting.value),
                     "a size from 1 byte to 1 PB, for example 25MB");
}

/// "selective:layernorm,moe_act": the policy and its modules.
Status read_policy_with_modules(const Setting& setting, std::size_t colon,
                                PlanConstraints& pinned) {
  const std::string_view text = setting.value;
  const Result<Recompute> policy = parse_recompute(text.substr(0, colon), setting.where);
  if (!policy) return policy.error();
  const Result<RecomputeModules> modules =
      parse_recompute_modules(text.substr(colon + 1), setting.where);
  if (!modules) return modules.error();
  pinned.pin<&ParallelPlan::recompute>(*policy);
  pinned.pin<&ParallelPlan::recompute_modules>(*modules);
  return Done{};
}

/// Pins the field to the value that the text of its flag gives.
Status read_flag(const PlanField& field, const Setting& setting, PlanConstraints& pinned) {
  if (field.kind == PlanFieldKind::listed) return read_listed(field, setting, pinned);
  const std::size_t colon = setting.value.find(':');
  if (field.is(&ParallelPlan::recompute) && colon != std::string::npos) {
    return read_policy_with_modules(setting, colon, pinned);
  }
  ParallelPlan plan;
  const auto take = [](auto& value, const auto& parsed) -> Status {
    if (!parsed) return parsed.error();
    value = *parsed;
    return Done{};
  };
  const Status read = std::visit(
      [&](auto member) -> Status {
        auto& value = plan.*member;
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, int>) {
          return take(value, parse_whole(field, setting));
        } else if constexpr (std::is_same_v<Value, bool>) {
          return take(value, parse_switch(setting));
        } else if constexpr (std::is_same_v<Value, double>) {
          return take(value, parse_share(field, setting));
        } else if constexpr (std::is_same_v<Value, std::vector<int>>) {
          return take(value, parse_list(setting, 0));
        } else if constexpr (std::is_same_v<Value, std::optional<Bytes>>) {
          return take(value, parse_bucket(setting));
        } else if constexpr (std::is_same_v<Value, RecomputeModules>) {
          return take(value, parse_recompute_modules(setting.value, setting.where));
        } else if constexpr (std::is_same_v<Value, OffloadModules>) {
          return take(value, parse_offload_modules(setting.value, setting.where));
        } else {
          return set_name(field, setting.value, setting.where, plan);
        }
      },
      field.member);
  if (read) pinned.pin(field, plan);
  return read;
}

}  // namespace

Result<PlanConstraints> constraints_of(const Settings& settings) {
  PlanConstraints pinned;
  for (const PlanField* field : kPlanFieldsInHelp) {
    const Setting* setting = settings.find(field->flag);
    if (setting == nullptr || field != plan_field_of(field->flag)) continue;
    if (const Status read = read_flag(*field, *setting, pinned); !read) {
      return at(*setting, read.error());
    }
  }
  return pinned;
}

PlanConstraints without_layers(PlanConstraints pinned) {
  for (const PlanField& field : plan_fields()) {
    if (field.kind == PlanFieldKind::per_stage) pinned.release(field);
  }
  return pinned;
}

PlanConstraints changed_by(PlanConstraints pinned, const PlanConstraints& changes) {
  using P = ParallelPlan;
  // Values that follow from a changed degree are derived again.
  if (changes.has<&P::tp, &P::cp, &P::pp>()) pinned.release<&P::dp>();
  if (changes.has<&P::tp, &P::cp, &P::pp, &P::dp>()) pinned.release<&P::shard_group>();
  if (changes.has<&P::tp>()) pinned.release<&P::sequence_parallel>();
  if (changes.has<&P::pp>()) pinned.release<&P::layers_per_stage>();
  if (changes.has<&P::pp, &P::layers_per_stage, &P::recompute>()) {
    pinned.release<&P::recompute_layers, &P::selective_layers>();
  }
  if (changes.has<&P::pp, &P::vpp>()) pinned.release<&P::schedule>();
  if (changes.has<&P::pp>()) pinned.release<&P::vpp>();
  if (changes.has<&P::pp, &P::vpp, &P::dp, &P::microbatch>())
    pinned.release<&P::microbatch_group>();
  // Without data parallelism, and from ZeRO-2 on, gradients have no buckets.
  if (changes.value_or<&P::zero>(0) >= 2 || changes.value_or<&P::dp>(2) == 1) {
    pinned.release<&P::bucket>();
  }
  return overlaid(std::move(pinned), changes);
}

}  // namespace echelon::cli
