// The number of files of an operator, counted on one that has kernels of both backends.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

/// Files that name the function, relative to runtime/.
std::set<std::string> files_naming(const std::string& function) {
  const std::filesystem::path root = std::filesystem::path(ECHELON_SOURCE_DIR) / "runtime";
  const std::regex name("\\b" + function + "\\b");
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    if (std::regex_search(slurp(entry.path().string()), name))
      found.insert(std::filesystem::relative(entry.path(), root).generic_string());
  }
  return found;
}

}  // namespace

TEST_CASE("an operator is declared once and needs six files, including its two kernels") {
  CHECK(files_naming("add_positions") ==
        std::set<std::string>{"backend/operators.def", "cpu/cpu_kernels.cpp",
                              "cuda/kernels/bias.cu", "cuda/kernels/kernels.hpp",
                              "cuda/queue/cuda_kernels.cpp", "model/chunk_ends.cpp"});
}

TEST_CASE("an optimizer's states are named only in one file and the kernels that read them") {
  CHECK(files_naming("second_moment") == std::set<std::string>{"backend/optimizer.hpp"});
}

}  // namespace echelon
