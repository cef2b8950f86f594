// Sets of modules in JSON: a list of names.
#include <algorithm>

#include "core/plan/plan_json_io.hpp"

namespace echelon {

template <class Module>
Json modules_json(const ModuleSet<Module>& modules) {
  Json list = Json::array();
  for (const Module module : modules_of(Module{})) {
    if (modules.contains(module)) list.push_back(name_of(module));
  }
  return list;
}

template <class Module>
ModuleSet<Module> modules_from(JsonReader& reader, std::string_view key) {
  ModuleSet<Module> modules;
  if (!reader.has(key)) return modules;
  const Json* list = reader.member(key);
  constexpr const char* kDone = std::is_same_v<Module, RecomputeModule> ? "recomputed"
                                : std::is_same_v<Module, OffloadModule> ? "offloaded"
                                                                        : "adapted";
  const std::string expected = std::string("a list of modules that can be ") + kDone;
  if (list == nullptr || !list->is_array()) {
    reader.fail(key, "not a list", expected);
    return modules;
  }
  const auto all = modules_of(Module{});
  for (const Json& item : *list) {
    const auto known =
        std::ranges::find_if(all, [&](Module module) { return item == name_of(module); });
    if (known == all.end()) {
      reader.fail(key, item.dump().substr(0, 40) + " in the list", expected);
      return modules;
    }
    modules.insert(*known);
  }
  return modules;
}

template Json modules_json(const RecomputeModules& modules);
template Json modules_json(const OffloadModules& modules);
template Json modules_json(const AdapterTargets& modules);
template RecomputeModules modules_from(JsonReader& reader, std::string_view key);
template OffloadModules modules_from(JsonReader& reader, std::string_view key);

}  // namespace echelon
