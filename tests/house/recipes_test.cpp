// CONTRIBUTING.md's recipes are complete: a GPU and a model are data, a framework is a table, a
// flag is a row and the command that reads it. A dummy GPU and a dummy model are really added.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon::house {
namespace {

namespace fs = std::filesystem;

/// An existing case of a recipe: the sources that name it in code are the sources that a new case
/// has to touch. Files are given by name alone.
struct Example {
  std::string_view recipe;
  std::string_view pattern;  ///< regular expression over code, comments left out
  std::vector<std::string_view> files;
};

const std::vector<Example>& examples() {
  static const std::vector<Example> all = {
      {"GPU", "L40S|l40s", {}},
      {"GPU", "H200-SXM|h200-sxm", {}},
      {"GPU", "H800-SXM|h800-sxm", {}},
      {"model", "deepseek-v2|mistral-7b|bloom-176b", {}},
      {"model family", "gemma2|Gemma2", {"huggingface_families_io.cpp"}},
      {"framework", "llm-foundry", {"llm_foundry.cpp", "fsdp_formats.cpp", "formats.cpp"}},
      {"framework", "\"deepspeed\"", {"deepspeed.cpp", "formats.cpp"}},
      {"flag", "\"nic-rate\"", {"table.cpp", "topo.cpp"}},
      {"flag", "\"weight-decay\"", {"table.cpp", "run_flags.cpp"}},
      {"flag", "\"why-not\"", {"table.cpp", "explain.cpp"}},
  };
  return all;
}
constexpr std::size_t kMostFilesOfAFlag = 2;

constexpr const char* kProduction[] = {"core",       "topologies", "costmodel", "planner",
                                       "evaluation", "interop",    "report",    "runtime",
                                       "cli",        "gui"};

/// The text without what follows "//" on a line.
std::string without_comments(const std::string& source) {
  static const std::regex comment("(^|[^:])//[^\n]*");
  return std::regex_replace(source, comment, "$1");
}

/// Sources of the program, from the root, whose code matches.
std::vector<std::string> sources_naming(const fs::path& root, std::string_view pattern) {
  const std::regex wanted{std::string(pattern)};
  std::vector<std::string> found;
  for (const char* folder : kProduction) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string kind = entry.path().extension().string();
      if (kind != ".cpp" && kind != ".hpp" && kind != ".cu" && kind != ".cuh") continue;
      if (!std::regex_search(without_comments(slurp(entry.path())), wanted)) continue;
      found.push_back(entry.path().lexically_relative(root).generic_string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// The folder of a catalog, wherever it lies: the one that holds `file`.
fs::path catalog_with(const std::string& file) {
  for (const char* folder : kProduction) {
    if (!fs::exists(fs::path(ECHELON_SOURCE_DIR) / folder)) continue;
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(ECHELON_SOURCE_DIR) / folder)) {
      if (entry.path().filename() == file) return entry.path().parent_path();
    }
  }
  FAIL("no catalog holds " << file);
  return {};
}

#ifdef ECHELON_HAS_PLAN
std::string replaced_once(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  INFO("replacing " << from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}
#endif

/// Whether CMake embeds every file of `folder`, new ones too.
bool embeds_all(const fs::path& folder) {
  const std::string files = folder.filename().string() + "/*.json";
  for (fs::path up = folder; up != ECHELON_SOURCE_DIR; up = up.parent_path()) {
    const fs::path list = up.parent_path() / "CMakeLists.txt";
    if (!fs::exists(list)) continue;
    const std::string text = slurp(list);
    const std::size_t at = text.find(files);
    const std::size_t line = at == std::string::npos ? at : text.rfind('\n', at);
    if (line == std::string::npos) continue;
    return text.substr(line, at - line).find("GLOB") != std::string::npos &&
           text.substr(line, at - line).find("CONFIGURE_DEPENDS") != std::string::npos;
  }
  return false;
}

TEST_CASE("code names an example of a recipe only in the files of the recipe") {
  std::string outside;
  for (const Example& example : examples()) {
    for (const std::string& path : sources_naming(ECHELON_SOURCE_DIR, example.pattern)) {
      const std::string name = fs::path(path).filename().string();
      if (std::ranges::count(example.files, name) > 0) continue;
      outside +=
          std::string(example.recipe) + " " + std::string(example.pattern) + ": " + path + "\n";
    }
  }
  CHECK(outside == "");
}

TEST_CASE("a flag of a command is in two files") {
  for (const Example& example : examples()) {
    if (example.recipe != "flag") continue;
    const auto files = sources_naming(ECHELON_SOURCE_DIR, example.pattern);
    INFO(example.pattern);
    CHECK_FALSE(files.empty());
    CHECK(files.size() <= kMostFilesOfAFlag);
  }
}

TEST_CASE("a use outside a recipe is found, a comment is not one") {
  const TempDir tree;
  tree.write("core/a.cpp", "int a;  // like the X999\nconst char* url = \"https://x999\";\n");
  CHECK(sources_naming(tree.path(), "X999").empty());
  CHECK(sources_naming(tree.path(), "x999") == std::vector<std::string>{"core/a.cpp"});
  tree.write("report/b.hpp", "bool is_new(Gpu g) { return g.name == \"X999\"; }\n");
  CHECK(sources_naming(tree.path(), "X999") == std::vector<std::string>{"report/b.hpp"});
}

TEST_CASE("a file added to a catalog is embedded without a change to a list") {
  for (const char* file : {"h200-sxm-141gb.json", "dgx-h200.json", "llama2-7b.json"}) {
    INFO(file);
    CHECK(embeds_all(catalog_with(file)));
  }
}

#ifdef ECHELON_HAS_PLAN
/// `plan ARGUMENTS` of the built program, in `directory`, without the user's settings.
ProcessResult plan_in(const TempDir& directory, const std::string& arguments) {
  return run_shell("env -i PATH=\"$PATH\" HOME=" + shell_word(directory.path().string()) +
                       " LC_ALL=C.UTF-8 " + shell_word(ECHELON_PLAN) + " " + arguments,
                   directory.path());
}

TEST_CASE("a GPU is added by data alone") {
  // The catalog's file of a GPU is an object that a machine may hold, but for its version and its
  // table of sources.
  std::string gpu = slurp(catalog_with("h200-sxm-141gb.json") / "h200-sxm-141gb.json");
  gpu = replaced_once(gpu, "\"H200-SXM-141GB\"", "\"X999-SXM-155GB\"");
  gpu = replaced_once(gpu, "139.8", "150.0");
  gpu = replaced_once(gpu, "\"schema\": 1,", "");
  gpu = std::regex_replace(gpu, std::regex("\"sources\": \\{[^}]*\\},"), "");
  std::string machine = slurp(catalog_with("dgx-h200.json") / "dgx-h200.json");
  machine = replaced_once(machine, "\"gpu\": \"h200-sxm-141gb\"", "\"gpu\": " + gpu);
  const TempDir added;
  added.write("x999.json", machine);

  const ProcessResult plan =
      plan_in(added, "--cluster x999.json --model 7b --gpus 16 --quiet --no-config");
  INFO(plan.out << plan.err);
  CHECK(plan.exit_code == 0);
  CHECK(plan.out.find("best plan") != std::string::npos);
  const ProcessResult shown = plan_in(added, "topo show x999.json");
  CHECK(shown.exit_code == 0);
  CHECK(shown.out.find("X999-SXM-155GB") != std::string::npos);
}

TEST_CASE("a model is added by data alone") {
  const TempDir added;
  const std::string model = slurp(catalog_with("llama2-7b.json") / "llama2-7b.json");
  added.write("dummy.json", std::regex_replace(
                                replaced_once(replaced_once(model, "\"llama2-7b\"", "\"dummy-4b\""),
                                              "\"layers\": 32", "\"layers\": 20"),
                                std::regex("\"published_parameters\": [0-9]+,"), ""));
  const ProcessResult plan = plan_in(added, "--model dummy.json --gpus 16 --quiet --no-config");
  INFO(plan.out << plan.err);
  CHECK(plan.exit_code == 0);
  CHECK(plan.out.find("best plan") != std::string::npos);
  const ProcessResult long_answer = plan_in(added, "--model dummy.json --gpus 16 --no-config");
  CHECK(long_answer.out.find("dummy-4b") != std::string::npos);
}
#endif

}  // namespace
}  // namespace echelon::house
