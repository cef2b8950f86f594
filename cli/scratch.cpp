#include "cli/scratch.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace echelon::cli {

Result<Scratch> Scratch::make() {
  std::error_code failed;
  const std::filesystem::path base = std::filesystem::temp_directory_path(failed);
  std::string path = ((failed ? "/tmp" : base) / "plan-run-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr)
    return environment_error(path, "a folder for the run cannot be made there", "set TMPDIR");
  return Scratch(path);
}

Scratch::Scratch(Scratch&& other) noexcept : path_(std::exchange(other.path_, "")) {}

Scratch::~Scratch() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace echelon::cli
