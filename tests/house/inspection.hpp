// The rules of docs/architecture.md that a program can check, over a tree of files.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace echelon::house {

/// Headers of a library and the places that may include them.
struct LibraryRule {
  std::vector<std::string> headers;  ///< beginnings of header names: "boost/", "mpi.h"
  std::vector<std::string> places;   ///< "cli/" is a folder, "*_io.cpp" any such file
};

/// The rules of architecture.md.
struct House {
  /// Folder to folders, to single headers ("planner/space/legality.hpp") and to folders below the
  /// first
  /// ("planner/space/").
  std::map<std::string, std::set<std::string>> may_include;
  std::vector<LibraryRule> libraries;
  std::set<std::string> root;  ///< names in the root; folders end in "/"
};

struct Violation {
  std::string file;  ///< relative to the root
  int line = 0;      ///< 0: the file as a whole
  std::string what;
};
/// "core/a.cpp:3: what".
[[nodiscard]] std::string describe(const Violation& violation);

/// Reads the two tables and the list of the root. A missing table is read as empty.
[[nodiscard]] House read_house(std::string_view architecture);

/// All violations of rules below `root`, sorted by file and line, without files that .gitignore
/// names.
[[nodiscard]] std::vector<Violation> inspect(const std::filesystem::path& root, const House& house);

}  // namespace echelon::house
