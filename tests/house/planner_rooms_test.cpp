// The rooms of planner/: space < search < explain, and no file includes its way back to itself.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace {

/// "planner/search/rank" for both of its files.
using Includes = std::map<std::string, std::set<std::string>>;

void add_includes(const std::string& file, const std::string& text, Includes& out) {
  const std::string unit = file.substr(0, file.find_last_of('.'));
  std::set<std::string>& included = out[unit];
  const std::regex line("#include \"(planner/[a-z_/]+)[.]hpp\"");
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
    if ((*at)[1] != unit) included.insert((*at)[1]);
  }
}

Includes includes_of_planner() {
  const std::filesystem::path root(ECHELON_SOURCE_DIR);
  Includes out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "planner")) {
    const std::string kind = entry.path().extension().string();
    if (kind != ".cpp" && kind != ".hpp") continue;
    add_includes(std::filesystem::relative(entry.path(), root).generic_string(),
                 echelon::slurp(entry.path()), out);
  }
  return out;
}

int height(const std::string& unit) {
  const std::vector<std::string> rooms{"planner/space/", "planner/search/", "planner/explain/"};
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    if (unit.starts_with(rooms[i])) return static_cast<int>(i);
  }
  return static_cast<int>(rooms.size());
}

/// Includes from a lower room into a higher one.
std::vector<std::string> upward(const Includes& includes) {
  std::vector<std::string> out;
  for (const auto& [from, all] : includes) {
    for (const std::string& to : all) {
      const bool rooms = height(from) < 3 && height(to) < 3;
      if (rooms && height(from) < height(to)) out.push_back(from + " includes " + to);
    }
  }
  return out;
}

/// Units that are left when those that include nothing are taken away again and again: circles.
std::vector<std::string> circles(Includes includes) {
  for (bool found = true; found;) {
    found = false;
    for (auto at = includes.begin(); at != includes.end();) {
      std::erase_if(at->second, [&](const std::string& to) { return !includes.contains(to); });
      found = found || at->second.empty();
      at = at->second.empty() ? includes.erase(at) : std::next(at);
    }
  }
  std::vector<std::string> out;
  for (const auto& [unit, left] : includes) out.push_back(unit);
  return out;
}

}  // namespace

TEST_CASE("the rooms of the planner include downwards and in no circle") {
  const Includes includes = includes_of_planner();
  REQUIRE(includes.contains("planner/search/search"));
  CHECK(upward(includes) == std::vector<std::string>{});
  CHECK(circles(includes) == std::vector<std::string>{});
}

TEST_CASE("an include upwards and a circle in the planner are seen") {
  Includes includes;
  add_includes("planner/space/a.cpp", "#include \"planner/search/b.hpp\"\n", includes);
  add_includes("planner/search/b.hpp", "#include \"planner/space/c.hpp\"\n", includes);
  add_includes("planner/space/c.hpp", "", includes);
  CHECK(upward(includes) == std::vector<std::string>{"planner/space/a includes planner/search/b"});
  CHECK(circles(includes).empty());
  add_includes("planner/space/c.cpp", "#include \"planner/space/a.hpp\"\n", includes);
  CHECK(circles(includes).size() == 3);
}
