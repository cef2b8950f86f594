#include "tests/house/inspection.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>

#include "tests/house/source_line.hpp"

namespace echelon::house {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

constexpr std::size_t kLongestUnexplained = 400;  // lines of a source file
constexpr std::size_t kFirstLines = 6;  // place of the comment with the reason in a longer file

Lines split_lines(std::string_view text) {
  std::istringstream in{std::string(text)};
  Lines lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::vector<std::string> backticked(const std::string& cell) {
  static const std::regex word("`([^`]+)`");
  std::vector<std::string> words;
  for (std::sregex_iterator it(cell.begin(), cell.end(), word), end; it != end; ++it) {
    words.push_back((*it)[1]);
  }
  return words;
}

// ----------------------------------------------------------------------------- a file of the tree

struct File {
  std::string path;    // from the root, with '/'
  std::string folder;  // first component
  std::string name;    // last component
  Lines lines;

  [[nodiscard]] bool is_header() const { return name.ends_with(".hpp") || name.ends_with(".cuh"); }
  [[nodiscard]] bool is_source() const {
    return is_header() || name.ends_with(".cpp") || name.ends_with(".cu") || name.ends_with(".h");
  }
  [[nodiscard]] bool is_free() const { return folder == "tests" || folder == "bench"; }
  [[nodiscard]] bool lies_in(const std::string& place) const {
    if (place.ends_with("/")) return path.starts_with(place);
    return fnmatch(place.c_str(), path.c_str(), 0) == 0;
  }
};

// -------------------------------------------------------------------------------------- the rules

struct TextRule {
  std::string pattern;               // regular expression over code_of(line)
  std::vector<std::string> folders;  // where it is forbidden; empty: everywhere
  std::string why;
};

const std::vector<TextRule>& text_rules() {
  static const std::vector<TextRule> rules{
      {R"(\bstd::(shuffle|random_device|rand|srand|\w+_distribution)\b)",
       {},
       "its results differ between machines; write the draw out"},
      {R"(\bstd::(cout|cerr|clog|printf|puts|getenv)\b|\bfmt::print\()",
       {"core", "topologies", "costmodel", "planner", "evaluation", "interop", "report"},
       "only cli/, gui/ and runtime/main.cpp print or read the environment"},
      {R"(#\s*include\s*<(fstream|filesystem|iostream|chrono|random|thread|unordered_map|unordered_set)>)",
       {"costmodel"},
       "costmodel/ is pure functions: no I/O, no clock, no randomness, no hash order"},
      {R"(\bstd::(exit|abort|terminate)\b)",
       {"topologies", "costmodel", "planner", "evaluation", "interop", "report", "cli"},
       "errors are values; only main returns an exit code"},
  };
  return rules;
}

constexpr const char* kFrameworkTables = "core/framework/";

/// Names of the frameworks, as their tables give them.
std::set<std::string> framework_names(const std::map<std::string, File>& tree) {
  static const std::regex name(R"re(\.name = "([^"]+)";)re");
  std::set<std::string> names;
  for (const auto& [path, file] : tree) {
    if (!path.starts_with(kFrameworkTables)) continue;
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (std::regex_search(line, match, name)) names.insert(match[1]);
    }
  }
  return names;
}

class Inspector {
 public:
  Inspector(const House& house, std::set<std::string> frameworks, std::vector<Violation>& found)
      : house_(house), frameworks_(std::move(frameworks)), found_(found) {}

  void inspect(const File& file, const std::map<std::string, File>& tree) {
    file_ = &file;
    tree_ = &tree;
    check_machine_paths();
    if (!file.is_source()) return;
    check_length();
    if (file.is_header()) check_header();
    if (file.folder == "tests") check_test_names();
    for (line_ = 1; line_ <= file.lines.size(); ++line_) {
      const std::string& text = file.lines[line_ - 1];
      if (const auto header = included(text)) check_include(*header);
      check_text(included(text) ? text : code_of(text));
      check_framework_names(text);
    }
  }

 private:
  void report(std::size_t line, std::string what) {
    found_.push_back({file_->path, static_cast<int>(line), std::move(what)});
  }

  void check_machine_paths() {
    // Spelled in two pieces, so that this file does not break its own rule.
    static const std::regex machine_path(std::string(R"((^|[^\w.~/-])(/wo)") + R"(rk/|\.\./sha)" +
                                         "red)");
    for (std::size_t i = 0; i < file_->lines.size(); ++i) {
      if (std::regex_search(file_->lines[i], machine_path)) {
        report(i + 1, "names a path of one machine");
      }
    }
  }

  void check_length() {
    if (file_->lines.size() <= kLongestUnexplained) return;
    for (std::size_t i = 0; i < kFirstLines; ++i) {
      if (file_->lines[i].find("400 lines because") != std::string::npos) return;
    }
    report(0, std::to_string(file_->lines.size()) +
                  " lines; split it, or say \"Over 400 lines because ...\" in its first lines");
  }

  void check_header() {
    bool once = false;
    for (std::size_t i = 0; i < file_->lines.size(); ++i) {
      const std::string code = code_of(file_->lines[i]);
      once = once || code.starts_with("#pragma once");
      if (code.find("using namespace") != std::string::npos) {
        report(i + 1, "\"using namespace\" in a header");
      }
    }
    if (!once) report(0, "a header without #pragma once");
  }

  /// ctest selects a test by its name. Catch2 interprets a leading "-", "~" or "[" as an operator,
  /// and brackets or ";" break CMake's list of the names: such tests are never run.
  void check_test_names() {
    static const std::regex misread(
        R"re(^\s*TEST_CASE\(\s*"([-~ ][^"]*|[^"]*[\]\[;\\][^"]*)".*)re");
    for (std::size_t i = 0; i < file_->lines.size(); ++i) {
      if (std::regex_match(file_->lines[i], misread)) {
        report(i + 1, "ctest cannot call a test by such a name");
      }
    }
  }

  void check_include(const std::string& quoted_header) {
    const std::string header = quoted_header.substr(1);
    if (!file_->is_free()) check_library(header);
    if (quoted_header.front() == '"') check_folder(header);
  }

  void check_folder(const std::string& header) {
    const std::size_t slash = header.find('/');
    const std::string folder = header.substr(0, slash);
    if (slash == std::string::npos || !house_.may_include.contains(folder)) {
      report(line_, "\"" + header + "\": write the path from the root, and <> for libraries");
      return;
    }
    const auto own = house_.may_include.find(file_->folder);
    if (own == house_.may_include.end()) {
      report(line_, "the table has no row for " + file_->folder + "/");
    } else if (folder != file_->folder && !admits(own->second, folder, header)) {
      report(line_, file_->folder + "/ may not include " + header);
    }
  }

  /// By its folder, by its own name, or by a folder below the first: "planner/space/".
  static bool admits(const std::set<std::string>& row, const std::string& folder,
                     const std::string& header) {
    return std::ranges::any_of(row, [&](const std::string& entry) {
      return entry == folder || entry == header ||
             (entry.ends_with('/') && header.starts_with(entry));
    });
  }

  void check_library(const std::string& header) {
    for (const LibraryRule& rule : house_.libraries) {
      const auto allows = [&](const std::string& place) { return file_->lies_in(place); };
      if (std::ranges::any_of(rule.places, allows)) continue;
      std::set<std::string> seen;
      if (brings(header, rule, seen)) {
        report(line_, header + " is, or includes, what belongs only in " + list(rule.places));
      }
    }
  }

  /// `header` is one of the rule's, or a header of ours that includes one, at any depth.
  bool brings(const std::string& header, const LibraryRule& rule,
              std::set<std::string>& seen) const {
    const auto begins = [&](const std::string& start) { return header.starts_with(start); };
    if (std::ranges::any_of(rule.headers, begins)) return true;
    const auto ours = tree_->find(header);
    if (ours == tree_->end() || !seen.insert(header).second) return false;
    return std::ranges::any_of(ours->second.lines, [&](const std::string& line) {
      const auto next = included(line);
      return next && brings(next->substr(1), rule, seen);
    });
  }

  /// The behaviour of a framework is a trait in its table; code that compares names would duplicate
  /// it. Below runtime/ and gui/, "echelon" is the program's own name.
  void check_framework_names(const std::string& line) {
    if (file_->is_free() || file_->path.starts_with(kFrameworkTables)) return;
    if (file_->folder == "interop") return;  // its formats are the frameworks'
    const bool own = file_->folder == "runtime" || file_->folder == "gui";
    for (const std::string& literal : literals_of(line)) {
      std::istringstream words(literal);
      bool any = false;
      bool all = true;
      for (std::string word; words >> word;) {
        any = true;
        all = all && frameworks_.contains(word) && !(own && word == "echelon");
      }
      if (any && all) {
        report(line_, "\"" + literal + "\" names a framework: make it a trait in core/framework/");
      }
    }
  }

  void check_text(const std::string& code) {
    static const std::vector<std::regex> patterns = [] {
      std::vector<std::regex> compiled;
      for (const TextRule& rule : text_rules()) compiled.emplace_back(rule.pattern);
      return compiled;
    }();
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const TextRule& rule = text_rules()[i];
      const bool applies =
          rule.folders.empty() ? true : std::ranges::count(rule.folders, file_->folder) > 0;
      std::smatch match;
      if (applies && !file_->name.ends_with("_io.cpp") &&
          std::regex_search(code, match, patterns[i])) {
        report(line_, match.str() + ": " + rule.why);
      }
    }
  }

  const House& house_;
  std::set<std::string> frameworks_;
  std::vector<Violation>& found_;
  const std::map<std::string, File>* tree_ = nullptr;
  const File* file_ = nullptr;
  std::size_t line_ = 0;
};

// --------------------------------------------------------------------------------------- the tree

/// Patterns of .gitignore: "/build/" (a folder of the root), "/build-*/", "*.swp" (anywhere).
class Ignored {
 public:
  explicit Ignored(const fs::path& root) {
    std::ifstream in(root / ".gitignore");
    for (std::string line; std::getline(in, line);) {
      if (!line.empty() && line.front() != '#') patterns_.push_back(line);
    }
  }
  [[nodiscard]] bool operator()(const std::string& path, const std::string& name) const {
    if (path == ".git") return true;
    return std::ranges::any_of(patterns_, [&](std::string pattern) {
      if (pattern.ends_with("/")) pattern.pop_back();
      if (pattern.starts_with("/"))
        return fnmatch(pattern.c_str() + 1, path.c_str(), FNM_PATHNAME) == 0;
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
  }

 private:
  std::vector<std::string> patterns_;
};

std::optional<Lines> text_lines(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  const std::string text = content.str();
  if (text.find('\0') != std::string::npos) return std::nullopt;  // a picture, not a text
  return split_lines(text);
}

void check_root(const fs::path& root, const House& house, const Ignored& ignored,
                std::vector<Violation>& found) {
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (ignored(name, name)) continue;
    if (!house.root.contains(entry.is_directory() ? name + "/" : name)) {
      found.push_back({name, 0, "is not in the list of what the root holds"});
    }
  }
}

}  // namespace

std::string describe(const Violation& violation) {
  const std::string line = violation.line > 0 ? ":" + std::to_string(violation.line) : "";
  return violation.file + line + ": " + violation.what;
}

House read_house(std::string_view architecture) {
  static const std::regex row(R"(^\|\s*([^|]*?)\s*\|\s*([^|]*?)\s*\|$)");
  static const std::regex word(R"([^\s,]+)");
  enum class Part { other, folders, libraries, root } part = Part::other;
  bool fenced = false;
  bool root_heading = false;
  House house;
  for (const std::string& line : split_lines(architecture)) {
    if (line.starts_with("#")) root_heading = line == "## The root";
    if (line.starts_with("```")) {
      fenced = !fenced;
      continue;
    }
    if (fenced && root_heading) {
      for (std::sregex_iterator it(line.begin(), line.end(), word), end; it != end; ++it) {
        house.root.insert(it->str());
      }
    }
    std::smatch cells;
    if (fenced || !std::regex_match(line, cells, row)) {
      part = Part::other;
      continue;
    }
    const std::string first = cells[1];
    const std::string second = cells[2];
    if (first == "folder") {
      part = Part::folders;
      continue;
    }
    if (first == "headers") {
      part = Part::libraries;
      continue;
    }
    if (first.starts_with("---")) continue;
    if (part == Part::libraries) house.libraries.push_back({backticked(first), backticked(second)});
    if (part != Part::folders) continue;
    std::set<std::string>& allowed = house.may_include[first];
    if (second == "nothing") continue;
    for (std::sregex_iterator it(second.begin(), second.end(), word), end; it != end; ++it) {
      allowed.insert(it->str());
    }
  }
  return house;
}

std::vector<Violation> inspect(const fs::path& root, const House& house) {
  const Ignored ignored(root);
  std::map<std::string, File> tree;
  for (fs::recursive_directory_iterator it(root), end; it != end; ++it) {
    const std::string path = fs::relative(it->path(), root).generic_string();
    const std::string name = it->path().filename().string();
    if (ignored(path, name)) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    if (auto lines = text_lines(it->path())) {
      tree[path] = {path, path.substr(0, path.find('/')), name, std::move(*lines)};
    }
  }
  std::vector<Violation> found;
  check_root(root, house, ignored, found);
  Inspector inspector(house, framework_names(tree), found);
  for (const auto& [path, file] : tree) inspector.inspect(file, tree);
  std::ranges::sort(found, [](const Violation& a, const Violation& b) {
    return std::tie(a.file, a.line, a.what) < std::tie(b.file, b.line, b.what);
  });
  return found;
}

}  // namespace echelon::house
