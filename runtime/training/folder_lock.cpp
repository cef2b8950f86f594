#include "runtime/training/folder_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "core/base/files.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {
namespace {

std::string name_of_this_process() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on {}", getpid(), host.data());
}

/// "process 4711 on node-3", as its holder wrote it; "another process" before it has.
std::string holder_of(int file) {
  std::array<char, 512> text{};
  const ssize_t size = pread(file, text.data(), text.size() - 1, 0);
  std::string name(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name.empty() ? "another process" : name;
}

/// What it is named after is of no account to the lock.
void write_holder(int file) {
  const std::string own = name_of_this_process() + "\n";
  [[maybe_unused]] const int cut = ftruncate(file, 0);
  [[maybe_unused]] const ssize_t written = pwrite(file, own.data(), own.size(), 0);
}

}  // namespace

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

Result<FolderLock> FolderLock::take(const std::string& folder, Seconds patience,
                                    const std::function<void(const std::string&)>& waits) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return environment_error(folder, "cannot be made: " + reason_of(failed.value()));
  constexpr mode_t kOthersToo = 0666;  // less what the umask takes
  const std::string path = folder + "/" + kFile;
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kOthersToo);
  if (file < 0) return environment_error(path, "cannot be created: " + reason_of(errno));
  FolderLock lock(file);
  const Seconds begun = steady_now();
  bool told = false;
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return lock;  // no locks on this file system
    const std::string who = holder_of(file);
    if (steady_now() - begun >= patience) {
      return environment_error(folder, "another run writes its checkpoints there: " + who,
                               "wait for it to end, end it, or choose another folder");
    }
    if (!told) {
      waits(fmt::format("{}: waiting for another run to end that writes its checkpoints there: {}",
                        folder, who));
    }
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  write_holder(file);
  return lock;
}

}  // namespace echelon
