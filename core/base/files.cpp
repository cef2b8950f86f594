#include "core/base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace echelon {

namespace {

/// A file descriptor that closes itself; `close()` reports whether closing succeeded.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool open() const { return fd_ >= 0; }
  [[nodiscard]] bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Pipes, terminals and devices cannot be replaced by a rename.
Status write_directly(const std::string& path, std::string_view content) {
  const auto complain = [&](int code) {
    return environment_error(path, "cannot be written: " + reason_of(code));
  };
  int fd = -1;
  if (path == "/dev/stdout") {
    fd = ::dup(STDOUT_FILENO);  // shares the file offset with printed output
  } else if (path == "/dev/stderr") {
    fd = ::dup(STDERR_FILENO);
  } else {
    fd = ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  }
  Descriptor file(fd);
  if (!file.open() || !write_all(file.get(), content) || !file.close()) return complain(errno);
  return Done{};
}

/// The target of a path after following symbolic links; it need not exist.
Result<std::string> follow_links(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMaxLinks = 40;
  fs::path target = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    std::error_code error;
    if (!fs::is_symlink(target, error)) return target.string();
    const fs::path link = fs::read_symlink(target, error);
    if (error) return environment_error(path, "cannot be written: " + reason_of(error.value()));
    target = link.is_absolute() ? link : target.parent_path() / link;
  }
  return environment_error(path, "cannot be written: " + reason_of(ELOOP));
}

/// Opens a temporary file in the folder of the target, so that the rename stays on one file system.
int open_temporary(const std::filesystem::path& folder, std::string& name) {
  constexpr int kAttempts = 100;
  for (int i = 0; i < kAttempts; ++i) {
    name = (folder / fmt::format(".echelon-{}-{}.tmp", ::getpid(), i)).string();
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

Status replace_file(const std::string& shown, const std::string& target, const struct stat* old,
                    std::string_view content) {
  const std::filesystem::path parent = std::filesystem::path(target).parent_path();
  const std::filesystem::path folder = parent.empty() ? std::filesystem::path(".") : parent;
  // Step 1: a temporary file in the same folder.
  std::string temporary;
  Descriptor file(open_temporary(folder, temporary));
  if (!file.open()) {
    const int code = errno;
    return environment_error(
        shown, "cannot be written: " + reason_of(code),
        fmt::format("check that the directory {} exists and can be written", folder.string()));
  }
  const auto give_up = [&](int code) {
    ::unlink(temporary.c_str());
    return environment_error(shown, "cannot be written: " + reason_of(code),
                             old != nullptr ? "its old content was kept" : "");
  };
  // Step 2: the mode of the replaced file; the content is on disk before the name points to it.
  if (old != nullptr && ::fchmod(file.get(), old->st_mode & 07777) != 0) return give_up(errno);
  if (!write_all(file.get(), content)) return give_up(errno);
  if (::fsync(file.get()) != 0 && errno != EINVAL) return give_up(errno);
  if (!file.close()) return give_up(errno);
  // Step 3: rename, atomically.
  if (::rename(temporary.c_str(), target.c_str()) != 0) return give_up(errno);
  Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.open()) ::fsync(directory.get());  // best effort: the content itself is safe
  return Done{};
}

/// Checks that `path` can be the name of a file. True if it exists; `info` then describes it.
Result<bool> names_a_file(const std::string& path, struct stat& info) {
  if (path.empty()) {
    return input_error("", "an empty file name", "the name of the file to write");
  }
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    return environment_error(path, "is a directory, not a file", "name a file inside it");
  }
  return exists;
}

}  // namespace

std::string reason_of(int code) {
  switch (code) {
    case ENOENT: return "no such file or directory";
    case EACCES:
    case EPERM: return "permission denied";
    case ENOSPC:
    case EDQUOT: return "no space left on the device";
    case EROFS: return "the file system is read-only";
    case ENOTDIR: return "a part of the path is not a directory";
    case ELOOP: return "too many symbolic links";
    case ENAMETOOLONG: return "the name is too long";
    case EFBIG: return "larger than the limit on file sizes";
    case EPIPE: return "the reader closed the pipe";
    default: return std::strerror(code);
  }
}

Result<std::string> read_file(const std::string& path, std::int64_t limit) {
  const auto too_long = [&](std::string size) {
    return input_error(path, "the file is too long: " + std::move(size),
                       fmt::format("at most {} bytes", limit));
  };
  const auto unreadable = [&](int code) {
    return environment_error(path, "cannot be read: " + reason_of(code));
  };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.open()) return unreadable(errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return unreadable(errno);
  if (S_ISDIR(info.st_mode)) return input_error(path, "is a directory, not a file", "a file");
  if (S_ISREG(info.st_mode) && info.st_size > limit) {
    return too_long(fmt::format("{} bytes", info.st_size));
  }
  std::string content;
  constexpr std::size_t kBlock = 1 << 16;
  for (std::size_t end = 0;;) {
    content.resize(end + kBlock);
    const ssize_t got = ::read(file.get(), content.data() + end, kBlock);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(errno);
    end += static_cast<std::size_t>(got);
    if (static_cast<std::int64_t>(end) > limit) return too_long("it continues past the limit");
    if (got == 0) {
      content.resize(end);
      return content;
    }
  }
}

Status write_file(const std::string& path, std::string_view content) {
  struct stat info {};
  const Result<bool> exists = names_a_file(path, info);
  if (!exists) return exists.error();
  const bool standard_stream = path == "/dev/stdout" || path == "/dev/stderr";
  if (standard_stream || (*exists && !S_ISREG(info.st_mode))) return write_directly(path, content);
  const Result<std::string> target = follow_links(path);
  if (!target) return target.error();
  return replace_file(path, *target, *exists ? &info : nullptr, content);
}

Status check_writable(const std::string& path) {
  struct stat info {};
  const Result<bool> exists = names_a_file(path, info);
  if (!exists) return exists.error();
  if (path == "/dev/stdout" || path == "/dev/stderr") return Done{};
  if (*exists && !S_ISREG(info.st_mode)) {
    if (::access(path.c_str(), W_OK) == 0) return Done{};
    return environment_error(path, "cannot be written: " + reason_of(errno));
  }
  const Result<std::string> target = follow_links(path);
  if (!target) return target.error();
  const std::filesystem::path parent = std::filesystem::path(*target).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  std::string temporary;  // only an attempt shows it: root passes every permission check
  const Descriptor file(open_temporary(folder, temporary));
  if (file.open()) {
    ::unlink(temporary.c_str());
    return Done{};
  }
  return environment_error(
      path, "cannot be written: " + reason_of(errno),
      fmt::format("check that the directory {} exists and can be written", folder));
}

Status check_folder_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path existing = fs::absolute(path, ignored).lexically_normal();
  while (!existing.has_filename() && existing.has_relative_path())
    existing = existing.parent_path();
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) {
    existing = existing.parent_path();
  }
  if (!fs::is_directory(existing, ignored)) {
    return environment_error(path, existing.string() + " is not a directory",
                             "name a folder that exists or can be created");
  }
  if (::access(existing.c_str(), W_OK | X_OK) == 0) return Done{};
  return environment_error(path, existing.string() + " cannot be written: " + reason_of(errno));
}

}  // namespace echelon
