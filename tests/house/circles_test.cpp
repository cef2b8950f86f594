// A room is a folder of sources with its files, without its sub-folders. Rooms do not include each
// other in circles: of two rooms one can be read without the other.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon::house {
namespace {

namespace fs = std::filesystem;
using Includes = std::map<std::string, std::set<std::string>>;  // room to rooms

/// Rooms of the code folders below `root`, by path: "core/model".
Includes room_includes(const fs::path& root) {
  static const std::set<std::string> folders{"core",       "topologies", "costmodel", "planner",
                                             "evaluation", "interop",    "report",    "runtime",
                                             "cli",        "gui"};
  static const std::regex include(R"re(^\s*#\s*include\s*"([^"]+)/[^/"]+".*)re");
  Includes rooms;
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string suffix = entry.path().extension().string();
      if (suffix != ".hpp" && suffix != ".cpp" && suffix != ".cu" && suffix != ".cuh") continue;
      const std::string room = fs::relative(entry.path(), root).parent_path().generic_string();
      std::set<std::string>& included = rooms[room];
      std::istringstream lines(slurp(entry.path()));
      std::smatch match;
      for (std::string line; std::getline(lines, line);) {
        if (std::regex_match(line, match, include)) included.insert(match[1]);
      }
    }
  }
  return rooms;
}

/// One circle as "a -> b -> a"; "" where there is none.
std::string circle_in(const Includes& rooms) {
  std::set<std::string> done;
  std::vector<std::string> path;
  const std::function<std::string(const std::string&)> visit =
      [&](const std::string& room) -> std::string {
    const auto begin = std::ranges::find(path, room);
    if (begin != path.end()) {
      std::string circle;
      for (auto it = begin; it != path.end(); ++it) circle += *it + " -> ";
      return circle + room;
    }
    const auto known = rooms.find(room);
    if (known == rooms.end() || done.contains(room)) return "";
    path.push_back(room);
    for (const std::string& next : known->second) {
      if (next == room) continue;
      if (std::string circle = visit(next); !circle.empty()) return circle;
    }
    path.pop_back();
    done.insert(room);
    return "";
  };
  for (const auto& [room, included] : rooms) {
    if (std::string circle = visit(room); !circle.empty()) return circle;
  }
  return "";
}

TEST_CASE("no rooms include each other in a circle") {
  const Includes rooms = room_includes(ECHELON_SOURCE_DIR);
  CHECK(rooms.size() > 30);
  CHECK(circle_in(rooms) == "");
}

TEST_CASE("a circle of rooms is found") {
  const TempDir tree;
  tree.write("planner/space/a.hpp", "#include \"planner/search/b.hpp\"\n");
  tree.write("planner/search/b.hpp", "#include <vector>\n");
  CHECK(circle_in(room_includes(tree.path())) == "");
  tree.write("planner/search/c.cpp", "#include \"core/plan/d.hpp\"\n");
  tree.write("core/plan/d.hpp", "  #  include \"planner/space/a.hpp\"  // why\n");
  CHECK(circle_in(room_includes(tree.path())) ==
        "core/plan -> planner/space -> planner/search -> core/plan");
}

}  // namespace
}  // namespace echelon::house
