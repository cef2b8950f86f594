// Circles of includes, between rooms (folders) or between files.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace echelon::house {

/// Of each unit (a room, or a file without its suffix), the units that it includes.
using Includes = std::map<std::string, std::set<std::string>>;

/// The first circle as "a -> b -> a"; "" where there is none. What a unit includes of itself, and
/// units that are no key of `includes`, are left out.
[[nodiscard]] inline std::string circle_in(const Includes& includes) {
  std::set<std::string> done;
  std::vector<std::string> path;
  const std::function<std::string(const std::string&)> visit =
      [&](const std::string& unit) -> std::string {
    const auto begin = std::ranges::find(path, unit);
    if (begin != path.end()) {
      std::string circle;
      for (auto it = begin; it != path.end(); ++it) circle += *it + " -> ";
      return circle + unit;
    }
    const auto known = includes.find(unit);
    if (known == includes.end() || done.contains(unit)) return "";
    path.push_back(unit);
    for (const std::string& next : known->second) {
      if (next == unit) continue;
      if (std::string circle = visit(next); !circle.empty()) return circle;
    }
    path.pop_back();
    done.insert(unit);
    return "";
  };
  for (const auto& [unit, included] : includes) {
    if (std::string circle = visit(unit); !circle.empty()) return circle;
  }
  return "";
}

}  // namespace echelon::house
