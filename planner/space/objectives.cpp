#include "planner/space/objectives.hpp"

#include <array>
#include <string>
#include <vector>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

namespace echelon {
namespace {

struct NamedObjective {
  Objective objective;
  std::string_view name;
};
constexpr std::array<NamedObjective, 4> kObjectives = {
    {{Objective::step_time, "step-time"},
     {Objective::cost, "cost"},
     {Objective::memory_headroom, "memory-headroom"},
     {Objective::goodput, "goodput"}}};

}  // namespace

std::string_view name_of(Objective objective) {
  for (const NamedObjective& entry : kObjectives) {
    if (entry.objective == objective) return entry.name;
  }
  return "?";
}

Result<Objective> parse_objective(std::string_view name, std::string_view where) {
  std::vector<std::string> known;
  for (const NamedObjective& entry : kObjectives) {
    if (entry.name == name) return entry.objective;
    known.emplace_back(entry.name);
  }
  return input_error(std::string(where), "unknown objective " + in_quotes(name),
                     "one of step-time, cost, memory-headroom, goodput", did_you_mean(name, known));
}

}  // namespace echelon
