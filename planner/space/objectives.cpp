#include "planner/space/objectives.hpp"

#include <array>
#include <string>
#include <vector>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

namespace echelon {
namespace {

template <class Value>
struct Named {
  Value value;
  std::string_view name;
};
constexpr std::array<Named<Objective>, 4> kObjectives = {
    {{Objective::step_time, "step-time"},
     {Objective::cost, "cost"},
     {Objective::memory_headroom, "memory-headroom"},
     {Objective::goodput, "goodput"}}};
constexpr std::array<Named<Preference>, 3> kPreferences = {{{Preference::robust, "robust"},
                                                            {Preference::balanced, "balanced"},
                                                            {Preference::fastest, "fastest"}}};

template <class Value, std::size_t n>
std::string_view name_in(const std::array<Named<Value>, n>& all, Value value) {
  for (const Named<Value>& entry : all) {
    if (entry.value == value) return entry.name;
  }
  return "?";
}

/// `what`: of which the name is unknown.
template <class Value, std::size_t n>
Result<Value> value_in(const std::array<Named<Value>, n>& all, std::string_view what,
                       std::string_view name, std::string_view where) {
  std::vector<std::string> known;
  std::string choices;
  for (const Named<Value>& entry : all) {
    if (entry.name == name) return entry.value;
    known.emplace_back(entry.name);
    choices += (choices.empty() ? "one of " : ", ") + known.back();
  }
  return input_error(std::string(where), "unknown " + std::string(what) + " " + in_quotes(name),
                     choices, did_you_mean(name, known));
}

}  // namespace

std::string_view name_of(Objective objective) { return name_in(kObjectives, objective); }

Result<Objective> parse_objective(std::string_view name, std::string_view where) {
  return value_in(kObjectives, "objective", name, where);
}

std::string_view name_of(Preference preference) { return name_in(kPreferences, preference); }

Result<Preference> parse_preference(std::string_view name, std::string_view where) {
  return value_in(kPreferences, "preference", name, where);
}

}  // namespace echelon
