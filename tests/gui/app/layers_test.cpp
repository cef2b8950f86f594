// The sub-folders of gui/ form layers: docs/gui.md lists what each may include.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;

namespace {

using Layers = std::map<std::string, std::set<std::string>>;

/// The table "| folder | may include | holds |" of docs/gui.md.
Layers documented_layers() {
  const std::string page = slurp(std::filesystem::path(ECHELON_SOURCE_DIR) / "docs/gui.md");
  const std::regex row(R"(\| `(\w+)/` \| ([^|]*) \|)");
  Layers layers;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it) {
    std::istringstream names((*it)[2]);
    std::set<std::string>& folders = layers[(*it)[1]];
    for (std::string name; names >> name;) {
      if (name.ends_with(',')) name.pop_back();
      if (name != "–") folders.insert(name);
    }
  }
  return layers;
}

/// Includes between sub-folders that `layers` does not allow.
std::string forbidden_includes(const Layers& layers) {
  const std::regex include(R"re(#include "gui/(\w+)/[^"]*")re");
  const std::filesystem::path root = std::filesystem::path(ECHELON_SOURCE_DIR) / "gui";
  std::string found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string suffix = entry.path().extension();
    if (suffix != ".cpp" && suffix != ".hpp") continue;
    const std::string folder = entry.path().parent_path().filename();
    const std::string text = slurp(entry.path());
    for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
      const std::string other = (*it)[1];
      if (other == folder || (layers.contains(folder) && layers.at(folder).contains(other)))
        continue;
      found += folder + "/" + entry.path().filename().string() + ": " + (*it)[0].str() + "\n";
    }
  }
  return found;
}

}  // namespace

TEST_CASE("the sub-folders of the window include only what docs/gui.md allows") {
  const Layers layers = documented_layers();
  CHECK(layers.size() == 6);
  const std::string found = forbidden_includes(layers);
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("the layers of the window have no circle") {
  Layers left = documented_layers();
  bool removed = true;
  while (removed) {  // folders that include nothing but removed ones
    removed = false;
    for (auto it = left.begin(); it != left.end();) {
      bool lowest = true;
      for (const std::string& other : it->second) lowest = lowest && !left.contains(other);
      it = lowest ? left.erase(it) : std::next(it);
      removed = removed || lowest;
    }
  }
  CHECK(left.empty());
}

TEST_CASE("an include that the layers of the window do not allow is found") {
  Layers layers = documented_layers();
  layers["views"].erase("canvas");
  CHECK(forbidden_includes(layers).find("views/memory_view.cpp") != std::string::npos);
}
