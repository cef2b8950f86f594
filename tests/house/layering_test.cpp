// The tree keeps the rules of docs/architecture.md, and the inspector detects violations.
#include <string>

#include "tests/house/inspection.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon::house {
namespace {

House our_house() {
  return read_house(slurp(std::filesystem::path(ECHELON_SOURCE_DIR) / "docs/architecture.md"));
}

/// All violations found in a tree that contains the folders and this one file.
std::string found_in(const std::string& name, const std::string& content) {
  const TempDir tree;
  tree.write(name, content);
  std::string all;
  for (const Violation& violation : inspect(tree.path(), our_house()))
    all += describe(violation) + "\n";
  return all;
}

TEST_CASE("the tree keeps the rules of the house") {
  std::string all;
  for (const Violation& violation : inspect(ECHELON_SOURCE_DIR, our_house())) {
    all += describe(violation) + "\n";
  }
  INFO(all);
  CHECK(all.empty());
}

TEST_CASE("architecture.md contains the tables that the inspection reads") {
  const House house = our_house();
  CHECK(house.may_include.at("core").empty());
  CHECK(house.may_include.at("costmodel") == std::set<std::string>{"core", "topologies"});
  CHECK(house.may_include.at("runtime") == std::set<std::string>{"core"});
  CHECK(house.libraries.size() >= 7);
  CHECK(house.root.contains("CMakeLists.txt"));
  CHECK(house.root.contains("core/"));
}

TEST_CASE("a folder that keeps the rules is not reported") {
  CHECK(found_in("planner/search/search.cpp",
                 "#include \"planner/search/search.hpp\"\n#include <vector>\n#include "
                 "\"core/base/units.hpp\"\n"
                 "#include \"costmodel/cost_model.hpp\"\n")
            .empty());
  CHECK(found_in("core/model/model_io.cpp", "#include \"core/json/json_io.hpp\"\n").empty());
  CHECK(found_in("core/json/json_io.hpp", "#pragma once\n#include <nlohmann/json.hpp>\n").empty());
  CHECK(found_in("topologies/graph/graph.cpp", "#include <boost/graph/adjacency_list.hpp>\n")
            .empty());
  CHECK(found_in("tests/core/a_test.cpp", "#include <nlohmann/json.hpp>\n").empty());
}

TEST_CASE("an include against the table is found, with its file and line") {
  CHECK(found_in("core/a.cpp", "\n#include \"planner/search/search.hpp\"\n") ==
        "core/a.cpp:2: core/ may not include planner/search/search.hpp\n");
  CHECK(found_in("runtime/a.cpp", "#include \"costmodel/cost_model.hpp\"\n").size() > 0);
  CHECK(found_in("costmodel/a.cpp", "  #  include \"report/text/text.hpp\"  // why\n").size() > 0);
  CHECK(found_in("cli/a.cpp", "#include \"gui/window.hpp\"\n").size() > 0);
  CHECK(found_in("core/a.cpp", "#include \"units.hpp\"\n").size() > 0);
  CHECK(found_in("core/a.cpp", "#include \"../cli/main.hpp\"\n").size() > 0);
}

TEST_CASE("a row may admit single headers and folders of another folder") {
  CHECK(found_in("evaluation/a.cpp", "#include \"planner/space/legality.hpp\"\n").empty());
  CHECK(found_in("evaluation/a.cpp", "#include \"planner/search/search_outcome.hpp\"\n") ==
        "evaluation/a.cpp:1: evaluation/ may not include planner/search/search_outcome.hpp\n");
  CHECK(found_in("planner/a.cpp", "#include \"evaluation/fit.hpp\"\n").size() > 0);
  const House house = read_house(
      "| folder | may include |\n|---|---|\n| planner | nothing |\n| evaluation | planner/space/ "
      "|\n");
  TempDir tree;
  tree.write("evaluation/a.cpp", "#include \"planner/space/legality.hpp\"\n");
  tree.write("evaluation/b.cpp", "#include \"planner/spaces.hpp\"\n");
  std::string all;
  for (const Violation& found : inspect(tree.path(), house)) all += describe(found) + "\n";
  CHECK(all.find("evaluation/a.cpp") == std::string::npos);
  CHECK(all.find("evaluation/b.cpp:1: evaluation/ may not include planner/spaces.hpp") !=
        std::string::npos);
}

TEST_CASE("a framework's name outside its table is found") {
  TempDir tree;
  tree.write("core/framework/titan.cpp", "f.name = \"titan\";\n");
  tree.write("core/framework/own.cpp", "f.name = \"echelon\";\n");
  tree.write("planner/a.cpp", "if (name == \"titan\") {\n");
  tree.write("cli/a.cpp", "choices(\"titan echelon\");\n");
  tree.write("report/a.cpp", "f(\"titan is fast\");  // \"titan\"\n");
  tree.write("runtime/a.cpp", "cache / \"echelon\";\n");
  tree.write("tests/core/a_test.cpp", "find(\"titan\");\n");
  std::string all;
  for (const Violation& found : inspect(tree.path(), our_house())) all += describe(found) + "\n";
  CHECK(all ==
        "cli/a.cpp:1: \"titan echelon\" names a framework: make it a trait in core/framework/\n"
        "planner/a.cpp:1: \"titan\" names a framework: make it a trait in core/framework/\n");
}

TEST_CASE("a library outside its place is found") {
  CHECK(found_in("core/model/model.cpp", "#include <nlohmann/json.hpp>\n").size() > 0);
  CHECK(found_in("planner/a.cpp", "#include \"core/json/json_io.hpp\"\n").size() > 0);
  CHECK(found_in("report/text/table.cpp", "#include <csv.h>\n").size() > 0);
  CHECK(found_in("planner/a.cpp", "#include <boost/graph/graph_traits.hpp>\n").size() > 0);
  CHECK(found_in("report/a.cpp", "#include <CLI/CLI.hpp>\n").size() > 0);
  CHECK(found_in("cli/a.cpp", "#include <QChart>\n").size() > 0);
  CHECK(found_in("runtime/a.cpp", "#include <cuda_runtime.h>\n").size() > 0);
  CHECK(found_in("runtime/a.cpp", "#include <mpi.h>\n").size() > 0);
}

TEST_CASE("a library included through one of our headers is found") {
  TempDir tree;
  tree.write("core/format_io.hpp", "#pragma once\n#include \"core/json/json_io.hpp\"\n");
  tree.write("core/json/json_io.hpp", "#pragma once\n#include <nlohmann/json.hpp>\n");
  tree.write("core/format_io.cpp", "#include \"core/format_io.hpp\"\n");
  CHECK(inspect(tree.path(), our_house()).empty());
  tree.write("core/model/model.cpp", "#include \"core/format_io.hpp\"\n");
  CHECK(inspect(tree.path(), our_house()).size() == 1);
}

TEST_CASE("text that makes results differ or breaks layers is found") {
  CHECK(found_in("planner/a.cpp", "std::shuffle(a, b, c);\n").size() > 0);
  CHECK(found_in("planner/a.cpp", "// not std::shuffle\n").empty());
  CHECK(found_in("planner/a.cpp", "f(\"std::shuffle\");\n").empty());
  CHECK(found_in("core/a.hpp", "#pragma once\nusing namespace std;\n").size() > 0);
  CHECK(found_in("core/a.hpp", "int a;\n").size() > 0);
  CHECK(found_in("report/a.cpp", "std::cout << 1;\n").size() > 0);
  CHECK(found_in("cli/a.cpp", "std::cout << 1;\n").empty());
  CHECK(found_in("costmodel/a.cpp", "#include <chrono>\n").size() > 0);
}

TEST_CASE("a test that cannot be selected by its name is found") {
  const std::string name = "TEST_CASE(";
  CHECK(found_in("tests/a_test.cpp", name + "\"--flag works\") {}\n").size() > 0);
  CHECK(found_in("tests/a_test.cpp", name + "\"in (0, 1] it is flat\") {}\n").size() > 0);
  CHECK(found_in("tests/a_test.cpp", name + "\"one; two\") {}\n").size() > 0);
  CHECK(found_in("tests/a_test.cpp", name + "\"the flag --flag works\") {}\n").empty());
}

TEST_CASE("a long file gives the reason in its first lines") {
  std::string lines;
  for (int i = 0; i < 401; ++i) lines += "int a;\n";
  CHECK(found_in("core/a.cpp", lines).size() > 0);
  CHECK(found_in("core/a.cpp", "// Over 400 lines because it is a table.\n" + lines).empty());
}

TEST_CASE("a path of one machine is found in any text") {
  // In two pieces, because this file is inspected as well.
  CHECK(found_in("docs/a.md", std::string("see `/wo") + "rk/main`\n").size() > 0);
  CHECK(found_in("core/a.cpp", std::string("// ../sha") + "red/data\n").size() > 0);
  CHECK(found_in("docs/a.md", "https://example.org/work/paper\n").empty());
}

TEST_CASE("the root contains nothing unexpected") {
  CHECK(found_in("notes.txt", "") == "notes.txt: is not in the list of what the root holds\n");
  CHECK(found_in("helpers/a.txt", "") == "helpers: is not in the list of what the root holds\n");
  const TempDir tree;
  tree.write(".gitignore", "/build/\n/build-*/\n*.swp\n");
  tree.write("build/x", "");
  tree.write("build-dev/core/a.cpp", "#include \"planner/search/search.hpp\"\n");
  tree.write("core/.a.swp", "std::shuffle");
  CHECK(inspect(tree.path(), our_house()).empty());
}

}  // namespace
}  // namespace echelon::house
