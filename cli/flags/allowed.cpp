#include "cli/flags/allowed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flags/constraints.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

namespace echelon::cli {

namespace {

struct Restrictable {
  std::string_view flag;
  std::string_view unused;  ///< the value of a plan that does not use it
};

/// The axes come first: --allow takes only them.
constexpr std::array<Restrictable, 11> kRestrictable = {{{"tp", "1"},
                                                         {"cp", "1"},
                                                         {"ep", "1"},
                                                         {"dp", "1"},
                                                         {"pp", "1"},
                                                         {"etp", "1"},
                                                         {"vpp", "1"},
                                                         {"sequence-parallel", "false"},
                                                         {"zero", "0"},
                                                         {"recompute", "none"},
                                                         {"offload", "optimizer=0"}}};
constexpr std::span<const Restrictable> kAll = kRestrictable;
constexpr std::span<const Restrictable> kAxes = kAll.first(5);

/// The names in "tp,pp", each of them one of `known`.
Result<std::vector<std::string>> names_in(const Setting& setting,
                                          std::span<const Restrictable> known) {
  std::vector<std::string> names;
  std::string_view rest = setting.value;
  while (true) {
    const std::string name(rest.substr(0, rest.find(',')));
    if (std::ranges::find(known, name, &Restrictable::flag) == known.end()) {
      std::vector<std::string> all;
      for (const Restrictable& each : known) all.emplace_back(each.flag);
      return input_error(setting.where, in_quotes(name),
                         fmt::format("a list of {}", fmt::join(all, ", ")),
                         did_you_mean(name, all));
    }
    names.push_back(name);
    if (rest.size() == name.size()) return names;
    rest.remove_prefix(name.size() + 1);
  }
}

/// Sets one to its unused value, in the name of the restriction at `where`.
Status leave_out(const Restrictable& what, const std::string& where, Settings& settings) {
  const Setting* given = settings.find(what.flag);
  if (given != nullptr && given->value != what.unused) {
    return input_error(
        given->where,
        fmt::format("{}, while {} leaves {} out", in_quotes(given->value), where, what.flag),
        "one of the two");
  }
  if (given == nullptr) settings.set(what.flag, {std::string(what.unused), where});
  return Done{};
}

}  // namespace

Result<Settings> with_restrictions(Settings settings) {
  std::vector<std::pair<const Restrictable*, std::string>> left_out;
  if (const Setting* allow = settings.find("allow")) {
    const Result<std::vector<std::string>> allowed = names_in(*allow, kAxes);
    if (!allowed) return allowed.error();
    for (const Restrictable& axis : kAxes) {
      const bool named = std::ranges::find(*allowed, axis.flag) != allowed->end();
      if (!named) left_out.emplace_back(&axis, allow->where);
    }
  }
  if (const Setting* forbid = settings.find("forbid")) {
    const Result<std::vector<std::string>> forbidden = names_in(*forbid, kAll);
    if (!forbidden) return forbidden.error();
    for (const std::string& name : *forbidden) {
      left_out.emplace_back(&*std::ranges::find(kAll, name, &Restrictable::flag), forbid->where);
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
  return constraints_of(*restricted);
}

}  // namespace echelon::cli
