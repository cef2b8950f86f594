// ./plan, ./plan run, ./plan gui and ./test share build/release: configuring more of the tree must
// not change how a source is compiled, or it would be compiled again.
#include <set>
#include <sstream>
#include <string>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

/// The entry of CMake's cache as an argument: "-DNAME=VALUE".
std::string cached(const std::string& name) {
  std::istringstream cache(slurp(std::filesystem::path(ECHELON_BINARY_DIR) / "CMakeCache.txt"));
  for (std::string line; std::getline(cache, line);) {
    if (!line.starts_with(name + ":")) continue;
    return " " + shell_word("-D" + name + "=" + line.substr(line.find('=') + 1));
  }
  return "";
}

/// The commands of compile_commands.json in this tree, with the tree's own name left out.
std::set<std::string> compile_commands(const std::string& tree) {
  std::set<std::string> commands;
  std::istringstream file(slurp(std::filesystem::path(tree) / "compile_commands.json"));
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"command\"") == std::string::npos) continue;
    for (std::size_t at = 0; (at = line.find(tree, at)) != std::string::npos;) {
      line.replace(at, tree.size(), "TREE");
    }
    commands.insert(line);
  }
  return commands;
}

TEST_CASE("the planner alone is compiled by the same commands as with all else") {
  const std::set<std::string> all = compile_commands(ECHELON_BINARY_DIR);
  if (all.empty()) return skip("this tree was configured without compile_commands.json");
  const TempDir dir;
  const std::string tree = (dir.path() / "tree").string();
  std::string command = shell_word(ECHELON_CMAKE) + " -S " + shell_word(ECHELON_SOURCE_DIR) +
                        " -B " + shell_word(tree) +
                        " -G Ninja -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DBUILD_TESTING=OFF"
                        " -DECHELON_RUNTIME=OFF -DECHELON_GUI=OFF -DECHELON_BENCH=OFF";
  for (const char* name : {"CMAKE_BUILD_TYPE", "CMAKE_CXX_COMPILER", "CMAKE_CXX_FLAGS",
                           "ECHELON_WARNINGS_AS_ERRORS", "ECHELON_UNITY", "ECHELON_SANITIZE"}) {
    command += cached(name);
  }
  const ProcessResult configured = run_shell(command);
  INFO(configured.out << configured.err);
  REQUIRE(configured.exit_code == 0);
  const std::set<std::string> alone = compile_commands(tree);
  CHECK(alone.size() > 10);
  CHECK(alone.size() < all.size());
  for (const std::string& one : alone) {
    INFO(one);
    CHECK(all.contains(one));
  }
}

TEST_CASE("every name in the list of long tests is that of a test") {
  const std::filesystem::path tests = std::filesystem::path(ECHELON_SOURCE_DIR) / "tests";
  std::istringstream list(slurp(tests / "long_tests.txt"));
  int named = 0;
  for (std::string line; std::getline(list, line);) {
    if (line.empty() || line.front() == '#') continue;
    ++named;
    // Only the title for tests of Catch2, the whole name for those of add_test.
    const std::string title = "\"" + line.substr(line.find(':') + 1) + "\"";
    const std::string name = "\"" + line + "\"";
    INFO(title);
    CHECK(run_shell("grep -rqF -e " + shell_word(title) + " -e " + shell_word(name) +
                    " --include=*_test.cpp --include=CMakeLists.txt " + shell_word(tests.string()))
              .exit_code == 0);
  }
  CHECK(named > 0);
}

}  // namespace
}  // namespace echelon
