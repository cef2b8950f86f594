#include "cli/flags/allowed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flags/constraints.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/plan/plan_fields.hpp"

namespace echelon::cli {

namespace {

struct Restrictable {
  std::string_view flag;
  /// The value of a plan that does not use it; empty where no flag says so: see kOverlapOfExperts.
  std::string_view unused;
};

/// Every overlap of a plan is named by one flag, and to leave out one must not choose the others.
constexpr std::string_view kOverlapOfExperts = "overlap-ep";
/// Nothing recomputed and whole layers stay free.
constexpr std::string_view kModuleSets = "recompute-modules";

/// The degrees of a plan: --allow takes only them.
std::vector<Restrictable> axes() {
  std::vector<Restrictable> out;
  for (const PlanField* field : kPlanFieldsInHelp) {
    if (field->kind == PlanFieldKind::degree) out.push_back({field->flag, "1"});
  }
  return out;
}

/// The axes, then techniques.
std::vector<Restrictable> axes_and_techniques() {
  std::vector<Restrictable> out = axes();
  for (const Restrictable& technique : {Restrictable{"vpp", "1"},
                                        {"sequence-parallel", "false"},
                                        {"zero", "0"},
                                        {"recompute", "none"},
                                        {kModuleSets, ""},
                                        {"offload", "optimizer=0"},
                                        {"cp-comm", "p2p"},
                                        {"rank-order", "tp-cp-ep-dp-pp"},
                                        {"dispatcher", "alltoall"},
                                        {kOverlapOfExperts, ""},
                                        {"cuda-graphs", "none"}}) {
    out.push_back(technique);
  }
  return out;
}

std::string names_of(const std::vector<Restrictable>& all) {
  std::string names;
  for (const Restrictable& each : all) names += (names.empty() ? "" : " ") + std::string(each.flag);
  return names;
}

/// The names in "tp,pp".
std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (true) {
    names.emplace_back(list.substr(0, list.find(',')));
    if (list.size() == names.back().size()) return names;
    list.remove_prefix(names.back().size() + 1);
  }
}

/// The same, each of them one of `known`; `techniques` are none of these.
Result<std::vector<std::string>> names_in(const Setting& setting,
                                          const std::vector<Restrictable>& known,
                                          const std::vector<Restrictable>& techniques = {}) {
  std::vector<std::string> names = names_in(setting.value);
  for (const std::string& name : names) {
    if (std::ranges::find(known, name, &Restrictable::flag) != known.end()) continue;
    std::vector<std::string> all;
    for (const Restrictable& each : known) all.emplace_back(each.flag);
    if (std::ranges::find(techniques, name, &Restrictable::flag) != techniques.end()) {
      return input_error(setting.where, in_quotes(name) + ", a technique",
                         fmt::format("a list of {}", fmt::join(all, ", ")),
                         "techniques are searched unless --forbid names them");
    }
    return input_error(setting.where, in_quotes(name),
                       fmt::format("a list of {}", fmt::join(all, ", ")), did_you_mean(name, all));
  }
  return names;
}

bool named(std::string_view list, std::string_view one) {
  const std::vector<std::string> names = names_in(list);
  return std::ranges::find(names, one) != names.end();
}

/// Sets `what` to its unused value; errors name the restriction, which was given at `where`.
Status leave_out(const Restrictable& what, const std::string& where, Settings& settings) {
  const bool overlap = what.flag == kOverlapOfExperts;
  const Setting* given = settings.find(overlap ? "overlap" : what.flag);
  if (what.flag == kModuleSets && given == nullptr) {
    const Setting* policy = settings.find("recompute");
    if (policy != nullptr && policy->value.starts_with("selective:")) given = policy;
  }
  if (overlap && given != nullptr && !named(given->value, "ep")) return Done{};
  if (given != nullptr && given->value != what.unused) {
    return input_error(
        given->where,
        fmt::format("{}, while {} leaves {} out", in_quotes(given->value), where, what.flag),
        "one of the two");
  }
  if (given == nullptr && !what.unused.empty())
    settings.set(what.flag, {std::string(what.unused), where});
  return Done{};
}

bool forbids(const Settings& settings, std::string_view what) {
  const Setting* forbid = settings.find("forbid");
  return forbid != nullptr && named(forbid->value, what);
}

}  // namespace

const std::string& names_to_allow() {
  static const std::string names = names_of(axes());
  return names;
}

const std::string& names_to_forbid() {
  static const std::string names = names_of(axes_and_techniques());
  return names;
}

Result<Settings> with_restrictions(Settings settings) {
  const std::vector<Restrictable> known_axes = axes();
  const std::vector<Restrictable> all = axes_and_techniques();
  std::vector<std::pair<const Restrictable*, std::string>> left_out;
  if (const Setting* allow = settings.find("allow")) {
    const Result<std::vector<std::string>> allowed = names_in(*allow, known_axes, all);
    if (!allowed) return allowed.error();
    for (const Restrictable& axis : known_axes) {
      const bool named = std::ranges::find(*allowed, axis.flag) != allowed->end();
      if (!named) left_out.emplace_back(&axis, allow->where);
    }
  }
  if (const Setting* forbid = settings.find("forbid")) {
    const Result<std::vector<std::string>> forbidden = names_in(*forbid, all);
    if (!forbidden) return forbidden.error();
    for (const std::string& name : *forbidden) {
      left_out.emplace_back(&*std::ranges::find(all, name, &Restrictable::flag), forbid->where);
    }
  }
  for (const auto& [what, where] : left_out) {
    if (const Status done = leave_out(*what, where, settings); !done) return done.error();
  }
  return settings;
}

Result<PlanConstraints> search_constraints_of(const Settings& settings) {
  const Result<Settings> restricted = with_restrictions(settings);
  if (!restricted) return restricted.error();
  Result<PlanConstraints> constraints = constraints_of(*restricted);
  if (constraints && forbids(settings, kOverlapOfExperts)) {
    constraints->pin<&ParallelPlan::overlap_ep>(false);
  }
  return constraints;
}

bool forbids_module_sets(const Settings& settings) { return forbids(settings, kModuleSets); }

}  // namespace echelon::cli
