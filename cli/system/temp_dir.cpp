#include "cli/system/temp_dir.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

namespace echelon::cli {

namespace {

constexpr const char* kPrefix = "plan-run-";

/// Descriptor of the folder, locked; -1 if another user owns it or a process has locked it.
int locked_folder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return -1;
  struct stat is {};
  if (fstat(folder, &is) == 0 && is.st_uid == geteuid() && flock(folder, LOCK_EX | LOCK_NB) == 0) {
    return folder;
  }
  close(folder);
  return -1;
}

/// Removes the folders of killed programs. A new one is kept: its program may not have locked it
/// yet.
void sweep(const std::filesystem::path& base) {
  constexpr std::time_t kYoung = 60;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(base, ignored)) {
    const std::string path = entry.path().string();
    struct stat is {};
    if (!entry.path().filename().string().starts_with(kPrefix) || lstat(path.c_str(), &is) != 0 ||
        !S_ISDIR(is.st_mode) || std::time(nullptr) - is.st_mtime < kYoung) {
      continue;
    }
    const int folder = locked_folder(path);
    if (folder < 0) continue;
    std::filesystem::remove_all(entry.path(), ignored);
    close(folder);
  }
}

}  // namespace

Result<TempDir> TempDir::make() {
  std::error_code failed;
  std::filesystem::path base = std::filesystem::temp_directory_path(failed);
  if (failed) base = "/tmp";
  sweep(base);
  std::string path = (base / kPrefix).string() + "XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return environment_error(path, "cannot create a temporary folder there", "set TMPDIR");
  return TempDir(path, locked_folder(path));
}

TempDir::TempDir(TempDir&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::exchange(other.lock_, -1)) {}

TempDir::~TempDir() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

}  // namespace echelon::cli
