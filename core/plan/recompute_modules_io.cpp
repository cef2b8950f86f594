// Recomputed modules in JSON: a list of names.
#include <algorithm>

#include "core/plan/plan_json_io.hpp"

namespace echelon {

Json modules_json(const RecomputeModules& modules) {
  Json list = Json::array();
  for (const RecomputeModule module : kRecomputeModules) {
    if (modules.contains(module)) list.push_back(name_of(module));
  }
  return list;
}

RecomputeModules modules_from(JsonReader& reader, std::string_view key) {
  RecomputeModules modules;
  if (!reader.has(key)) return modules;
  const Json* list = reader.member(key);
  const std::string expected = "a list of modules that can be recomputed";
  if (list == nullptr || !list->is_array()) {
    reader.fail(key, "not a list", expected);
    return modules;
  }
  for (const Json& item : *list) {
    const auto known = std::ranges::find_if(
        kRecomputeModules, [&](RecomputeModule module) { return item == name_of(module); });
    if (known == kRecomputeModules.end()) {
      reader.fail(key, item.dump().substr(0, 40) + " in the list", expected);
      return modules;
    }
    modules.insert(*known);
  }
  return modules;
}

}  // namespace echelon
