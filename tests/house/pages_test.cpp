// The pages agree with the tree and with each other: links, headings, paths and tests exist.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon::house {
namespace {

namespace fs = std::filesystem;

/// Paths that pages name although this tree does not contain them.
const std::set<std::string> kElsewhere = {"docs/b200/b200_real_repro_guide.md",  // of SimuMax
                                          "bench/results/"};  // written by bench/gpu/measure.py

/// Names that code once had, and phrases with a plain equivalent ("default: X", "is reported",
/// "recomputed"): CONTRIBUTING.md, "Style".
constexpr const char* kRetired =
    "`(?:Pricer|Cut|CutCosts|PlanReport|NearMiss|SpacePlan|FrontPlan|CountResult|Stack|RunHabits|"
    "RunRow|RunFlag|ObservedRun|Learned|Ledger|Crew|Gate|Carver|Desk|Sheet|Comparand|Verdict)`|"
    "\\b(?:unless given|is told|are told|says what|what is due|made again|computed again|as ever|"
    "what binds|nobody asked)\\b";

struct Page {
  std::string path;                   // from the root
  std::vector<std::string> prose;     // lines outside fenced blocks
  std::vector<std::string> headings;  // anchors, as GitHub forms them
};

/// "What is refused, and what is reported" is "what-is-refused-and-what-is-reported". GitHub keeps
/// letters, digits, hyphens and underscores, and makes a blank a hyphen; bytes of UTF-8 sequences
/// are letters here, so a heading that is linked has no punctuation outside ASCII.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c >= 'A' && c <= 'Z') {
      anchor += static_cast<char>(c - 'A' + 'a');
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
               static_cast<unsigned char>(c) >= 0x80) {
      anchor += c;
    } else if (c == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

Page read_page(const std::string& path, const std::string& text) {
  Page page;
  page.path = path;
  std::map<std::string, int> seen;
  bool fenced = false;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) fenced = !fenced;
    if (fenced) continue;
    page.prose.push_back(line);
    const std::size_t level = line.find_first_not_of('#');
    if (level == 0 || level == std::string::npos || level > 6 || line[level] != ' ') continue;
    const std::string anchor = anchor_of(line.substr(level + 1));
    const int before = seen[anchor]++;
    page.headings.push_back(before == 0 ? anchor : anchor + "-" + std::to_string(before));
  }
  return page;
}

/// Calls `visit` with every file of the tree, as a path from the root; build trees and names that
/// begin with a dot are left out.
template <class Visit>
void for_each_file(const fs::path& root, const Visit& visit) {
  for (fs::recursive_directory_iterator it(root), end; it != end; ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory() &&
        (name.starts_with(".") || (it.depth() == 0 && name.starts_with("build")))) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file()) {
      visit(it->path().lexically_relative(root).generic_string());
    }
  }
}

std::map<std::string, Page> read_pages(const fs::path& root) {
  std::map<std::string, Page> pages;
  for_each_file(root, [&](const std::string& path) {
    if (path.ends_with(".md")) pages[path] = read_page(path, slurp(root / path));
  });
  return pages;
}

std::string without_code(const std::string& line) {
  static const std::regex code("`[^`]*`");
  return std::regex_replace(line, code, "");
}

/// Every match of `pattern`'s first group in the prose of a page.
std::vector<std::string> matches_in(const Page& page, const std::regex& pattern, bool code) {
  std::vector<std::string> found;
  for (const std::string& line : page.prose) {
    const std::string text = code ? line : without_code(line);
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
      found.push_back((*it)[1]);
    }
  }
  return found;
}

/// The broken links of all pages, one line each.
std::string broken_links(const fs::path& root, const std::map<std::string, Page>& pages) {
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  std::string broken;
  for (const auto& [path, page] : pages) {
    for (const std::string& target : matches_in(page, link, false)) {
      if (target.find("://") != std::string::npos || target.starts_with("mailto:")) continue;
      const std::size_t hash = std::min(target.find('#'), target.size());
      const fs::path file =
          hash == 0 ? fs::path(path)
                    : (fs::path(path).parent_path() / target.substr(0, hash)).lexically_normal();
      const std::string name = file.generic_string();
      if (!fs::exists(root / file)) {
        broken += path + ": no file " + name + "\n";
        continue;
      }
      if (hash == target.size()) continue;
      const auto other = pages.find(name);
      const std::string anchor = target.substr(hash + 1);
      if (other == pages.end() || std::ranges::count(other->second.headings, anchor) == 0) {
        broken += path + ": no heading " + name + "#" + anchor + "\n";
      }
    }
  }
  return broken;
}

/// Paths into our folders that the page names: files anywhere, folders ("gui/") and patterns
/// ("core/model/catalog/*.json") between backticks.
std::vector<std::string> paths_in(const Page& page) {
  const std::string ours =
      "(?:bench|cli|cmake|core|costmodel|docs|evaluation|examples|gui|interop|planner|report|"
      "runtime|scripts|tests|topologies)/";
  static const std::regex file("(?:^|[^\\w/.-])(" + ours +
                               "[\\w./-]*\\.(?:cpp|hpp|cu|cuh|cmake|csv|json|md|py|sh|txt))\\b");
  static const std::regex folder("`(" + ours + "(?:[\\w./-]*/|[\\w./*-]*\\*[\\w./*-]*)?)`");
  std::vector<std::string> found = matches_in(page, file, true);
  for (std::string& one : matches_in(page, folder, true)) found.push_back(std::move(one));
  return found;
}

/// A recipe writes NAME for the file that the reader adds, and a pattern has a star: the folder
/// has to exist.
bool is_there(const fs::path& root, const std::string& path) {
  const std::size_t open = std::min({path.find('*'), path.find("NAME"), path.size()});
  if (open == path.size()) return fs::exists(root / path);
  return fs::is_directory(root / path.substr(0, path.rfind('/', open)));
}

TEST_CASE("links between pages lead to files and headings that exist") {
  const fs::path root = ECHELON_SOURCE_DIR;
  const auto pages = read_pages(root);
  REQUIRE(pages.size() > 25);
  CHECK(broken_links(root, pages) == "");
}

TEST_CASE("a broken link is found") {
  const TempDir tree;
  tree.write("a.md", "# One, two\n## One two\n[x](b/c.md#d-e) [y](#one-two) [z](#one-two-1)\n");
  tree.write("b/c.md", "## D `e`\n`[x](nowhere.md)` [up](../a.md)\n```\n[x](nowhere.md)\n```\n");
  CHECK(broken_links(tree.path(), read_pages(tree.path())) == "");
  tree.write("d.md", "[x](gone.md), [y](a.md#gone), [z](https://example.org/gone)\n");
  CHECK(broken_links(tree.path(), read_pages(tree.path())) ==
        "d.md: no file gone.md\nd.md: no heading a.md#gone\n");
}

TEST_CASE("the paths that a page names are found") {
  const Page page =
      read_page("a.md",
                "`core/a.hpp`, (planner/b.cpp) `gui/` `core/model/catalog/*.json` x/core/a.hpp\n"
                "`megatron/core/c.py` and/or cli/ `topologies/catalog/gpus/NAME.json`\n");
  CHECK(paths_in(page) == std::vector<std::string>{"core/a.hpp", "planner/b.cpp",
                                                   "topologies/catalog/gpus/NAME.json", "gui/",
                                                   "core/model/catalog/*.json"});
  const TempDir tree;
  tree.write("core/model/catalog/a.json", "{}");
  CHECK(is_there(tree.path(), "core/model/catalog/*.json"));
  CHECK(is_there(tree.path(), "core/model/catalog/NAME.json"));
  CHECK_FALSE(is_there(tree.path(), "core/gone/NAME.json"));
  CHECK_FALSE(is_there(tree.path(), "core/model/catalog/b.json"));
}

TEST_CASE("every path that a page names exists") {
  std::string missing;
  for (const auto& [path, page] : read_pages(ECHELON_SOURCE_DIR)) {
    for (const std::string& one : paths_in(page)) {
      if (kElsewhere.contains(one) || is_there(ECHELON_SOURCE_DIR, one)) continue;
      missing += path + ": " + one + "\n";
    }
  }
  CHECK(missing == "");
}

TEST_CASE("pages use the field's terms") {
  const std::regex retired("(" + std::string(kRetired) + ")");
  std::string found;
  for (const auto& [path, page] : read_pages(ECHELON_SOURCE_DIR)) {
    // CONTRIBUTING.md quotes what to avoid.
    if (path == "CONTRIBUTING.md") continue;
    for (const std::string& one : matches_in(page, retired, true))
      found += path + ": " + one + "\n";
  }
  CHECK(found == "");
  const Page page = read_page("a.md", "A `Ledger` of what is due; unless given, a ledger\n");
  CHECK(matches_in(page, retired, true).size() == 3);
}

TEST_CASE("every test that a page names exists") {
  std::set<std::string> tests;
  for_each_file(fs::path(ECHELON_SOURCE_DIR) / "tests",
                [&](const std::string& path) { tests.insert(fs::path(path).stem().string()); });
  static const std::regex named("`([a-z0-9_]+_test)`");
  std::string missing;
  for (const auto& [path, page] : read_pages(ECHELON_SOURCE_DIR)) {
    for (const std::string& one : matches_in(page, named, true)) {
      if (!tests.contains(one)) missing += path + ": " + one + "\n";
    }
  }
  CHECK(missing == "");
}

/// The cells of a row of a Markdown table, without the blanks around them.
std::vector<std::string> table_cells(const std::string& line) {
  std::vector<std::string> cells;
  std::size_t begin = line.find('|');
  while (begin != std::string::npos) {
    const std::size_t end = line.find('|', begin + 1);
    if (end == std::string::npos) break;
    std::string cell = line.substr(begin + 1, end - begin - 1);
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
    cells.push_back(std::move(cell));
    begin = end;
  }
  return cells;
}

/// The rows of a table of docs/accuracy.md under a heading: per source the number of rows and the
/// error out of fold, as written; "SOURCE, not flagged" has those of the last column.
std::map<std::string, std::string> accuracy_figures(const std::string& page,
                                                    const std::string& heading) {
  static const std::regex unflagged(R"(([\d.]+ % / [\d.]+ %).*\(([\d,]+) rows\))");
  std::map<std::string, std::string> figures;
  std::istringstream in(page.substr(page.find("\n" + heading + "\n") + 1));
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line) && !line.starts_with("## ")) {
    const std::vector<std::string> cells = table_cells(line);
    if (cells.size() < 5) continue;
    const std::string source = std::regex_replace(cells[0], std::regex("\\*"), "");
    figures[source] = cells[1] + " rows, " + cells[3];
    std::smatch found;
    if (!std::regex_search(cells.back(), found, unflagged)) continue;
    figures[source + ", not flagged"] = found[2].str() + " rows, " + found[1].str();
  }
  return figures;
}

TEST_CASE("the page on machines names every machine of the catalog") {
  const fs::path root(ECHELON_SOURCE_DIR);
  const std::string page = slurp(root / "docs/topology-format.md");
  const std::regex word("[a-z0-9-]+");
  const std::set<std::string> words(std::sregex_token_iterator(page.begin(), page.end(), word), {});
  for (const auto& file : fs::directory_iterator(root / "topologies/catalog/clusters")) {
    INFO(file.path().stem().string());
    CHECK(words.contains(file.path().stem().string()));
  }
}

TEST_CASE("the README's errors are those of the page of all errors") {
  const std::string page = slurp(fs::path(ECHELON_SOURCE_DIR) / "docs/accuracy.md");
  const auto times = accuracy_figures(page, "## Step time");
  const auto memory = accuracy_figures(page, "## Peak memory");
  REQUIRE(times.contains("all, not flagged"));
  REQUIRE(memory.contains("nanotron"));
  std::istringstream in(slurp(fs::path(ECHELON_SOURCE_DIR) / "README.md"));
  std::string wrong;
  int compared = 0;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("| step time, error out of fold")) inside = true;
    if (line.empty()) inside = false;
    const std::vector<std::string> cells = table_cells(line);
    if (!inside || cells.size() != 6 || line.find('%') == std::string::npos) continue;
    const auto compare = [&](std::size_t first, const auto& figures) {
      const std::string source = cells[first].substr(0, cells[first].find(':'));
      const auto known = figures.find(source);
      const std::string shown = cells[first + 1] + " rows, " + cells[first + 2];
      const std::string right = known == figures.end() ? "no such source" : known->second;
      if (shown != right) wrong += source + ": " + shown + "; " + right + "\n";
      ++compared;
    };
    compare(0, times);
    if (!cells[3].empty()) compare(3, memory);
  }
  CHECK(compared >= 10);
  CHECK(wrong == "");
}

#ifdef ECHELON_HAS_PLAN
TEST_CASE("the README shows what the program answers") {
  const fs::path readme = fs::path(ECHELON_SOURCE_DIR) / "README.md";
  const std::string text = slurp(readme);
  const std::string fence = "```\n";
  const std::size_t begin = text.find(fence + "llama2-7b");
  REQUIRE(begin != std::string::npos);
  const std::size_t first = begin + fence.size();
  const std::string shown = text.substr(first, text.find(fence, first) - first);

  const TempDir home;
  const ProcessResult answer = run_shell(
      "env -i PATH=\"$PATH\" HOME=" + shell_word(home.path().string()) +
          " LC_ALL=C.UTF-8 COLUMNS=100 " + shell_word(ECHELON_PLAN) + " --model 7b --gpus 64",
      home.path());
  REQUIRE(answer.exit_code == 0);
  // The answer continues with smaller plans and the assumptions, after an empty line.
  std::size_t end = 0;
  for (long left = std::ranges::count(shown, '\n'); left > 0; --left) {
    end = answer.out.find('\n', end) + 1;
  }
  const std::string begun = answer.out.substr(0, end);
  if (std::getenv("ECHELON_UPDATE_GOLDENS") != nullptr && begun != shown) {
    std::ofstream(readme, std::ios::binary)
        << text.substr(0, first) << begun << text.substr(first + shown.size());
    WARN("README.md was rewritten: look at the difference");
    return;
  }
  CHECK(begun == shown);
}
#endif

}  // namespace
}  // namespace echelon::house
