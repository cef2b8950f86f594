#include "runtime/io/weights/disk.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/files.hpp"

namespace echelon {
namespace {

Error not_written(const std::string& path, int code) {
  return environment_error(path, "cannot be written: " + reason_of(code));
}

/// File systems that cannot reserve space (NFS before 4.2, for instance) answer so.
bool cannot_reserve(int code) { return code == EOPNOTSUPP || code == ENOSYS || code == EINVAL; }

}  // namespace

Disk::File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

/// A full disk with the bytes needed and free.
Error Disk::no_space_or(const std::string& path, std::int64_t bytes, int code) const {
  Error error = not_written(path, code);
  if (code != ENOSPC && code != EDQUOT) return error;
  const Result<std::int64_t> left = free_bytes(std::filesystem::path(path).parent_path());
  if (left)
    error.found += fmt::format(": {} are needed, {} are free", size_text(bytes), size_text(*left));
  return error;
}

Status Disk::make_directory(const std::string& path) const {
  if (const int code = fault("mkdir", path)) return not_written(path, code);
  if (::mkdir(path.c_str(), 0777) != 0) return not_written(path, errno);
  return Done{};
}

Result<Disk::File> Disk::create(const std::string& path, std::int64_t bytes) const {
  if (const int code = fault("create", path)) return not_written(path, code);
  File file(path, ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.fd_ < 0) return not_written(path, errno);
  int code = fault("allocate", path);
  while (code == 0 && bytes > 0 && ::fallocate(file.fd_, 0, 0, bytes) != 0) {
    if (errno != EINTR) code = errno;
  }
  if (cannot_reserve(code)) code = ::ftruncate(file.fd_, bytes) == 0 ? 0 : errno;
  if (code != 0) return no_space_or(path, bytes, code);
  return file;
}

Result<Disk::File> Disk::open(const std::string& path) const {
  if (const int code = fault("open", path)) return not_written(path, code);
  File file(path, ::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.fd_ < 0) return not_written(path, errno);
  return file;
}

Status Disk::write(const File& file, std::int64_t offset, const void* data,
                   std::int64_t bytes) const {
  if (const int code = fault("write", file.path())) return no_space_or(file.path(), bytes, code);
  const auto* from = static_cast<const char*>(data);
  for (std::int64_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pwrite(file.fd_, from + done, static_cast<std::size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return no_space_or(file.path(), bytes - done, errno);
    done += got;
  }
  return Done{};
}

Status Disk::sync(const File& file) const {
  if (const int code = fault("sync", file.path())) return not_written(file.path(), code);
  if (::fsync(file.fd_) != 0) return not_written(file.path(), errno);
  return Done{};
}

Status Disk::sync_directory(const std::string& path) const {
  if (const int code = fault("sync_directory", path)) return not_written(path, code);
  const File directory(path, ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.fd_ < 0) return not_written(path, errno);
  // Some network file systems do not support fsync of directories.
  if (::fsync(directory.fd_) != 0 && errno != EINVAL) return not_written(path, errno);
  return Done{};
}

Status Disk::rename(const std::string& from, const std::string& to) const {
  if (const int code = fault("rename", to)) return not_written(to, code);
  std::error_code ignored;
  const bool swap = std::filesystem::exists(to, ignored);
  const unsigned how = swap ? RENAME_EXCHANGE : 0;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), how) == 0) return Done{};
  return not_written(to, errno);
}

Status Disk::remove_all(const std::string& path) const {
  if (const int code = fault("remove", path)) return not_written(path, code);
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) {
    return environment_error(path, "cannot be removed: " + reason_of(error.value()));
  }
  return Done{};
}

Result<std::int64_t> Disk::free_bytes(const std::string& path) const {
  if (const int code = fault("statvfs", path)) return not_written(path, code);
  struct statvfs space {};
  if (::statvfs(path.c_str(), &space) != 0) return not_written(path, errno);
  return static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
}

Status Disk::check_free(const std::string& path, std::int64_t bytes) const {
  const Result<std::int64_t> left = free_bytes(path);
  if (!left) return left.error();
  if (bytes <= *left) return Done{};
  return environment_error(
      path,
      fmt::format("{} are needed on the disk and {} are free", size_text(bytes), size_text(*left)),
      "free some, keep fewer checkpoints (--keep-last), or write elsewhere");
}

std::string size_text(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (size >= 1e9) return fmt::format("{:.1f} GB", size / 1e9);
  if (size >= 1e6) return fmt::format("{:.1f} MB", size / 1e6);
  if (size >= 1e3) return fmt::format("{:.1f} kB", size / 1e3);
  return fmt::format("{} bytes", bytes);
}

}  // namespace echelon
