// Disk: everything that changes files of weights goes through here, so that a test can make any
// step of it fail.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/result.hpp"

namespace echelon {

class Disk {
 public:
  /// Called before each operation ("create", "write", "sync", "rename" ...): returns 0, or the
  /// errno to fail with. An exception ends the caller there, like a crash.
  using Fault = std::function<int(std::string_view operation, const std::string& path)>;

  /// An open file; closes itself.
  class File {
   public:
    File(File&& other) noexcept
        : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
    File& operator=(File&&) = delete;
    ~File();
    [[nodiscard]] const std::string& path() const { return path_; }

   private:
    friend class Disk;
    File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
    std::string path_;
    int fd_;
  };

  Disk() = default;
  explicit Disk(Fault fault) : fault_(std::move(fault)) {}

  // All errors are of the environment and carry the path.
  [[nodiscard]] Status make_directory(const std::string& path) const;
  /// A new file of this size, preallocated if the file system supports it: without writing its
  /// blocks, as posix_fallocate(3) does where fallocate(2) is refused.
  [[nodiscard]] Result<File> create(const std::string& path, std::int64_t bytes) const;
  /// An existing file, to write into.
  [[nodiscard]] Result<File> open(const std::string& path) const;
  [[nodiscard]] Status write(const File& file, std::int64_t offset, const void* data,
                             std::int64_t bytes) const;
  /// The written data are on the disk when this returns.
  [[nodiscard]] Status sync(const File& file) const;
  /// The same for the names in a directory.
  [[nodiscard]] Status sync_directory(const std::string& path) const;
  /// `to` must not exist, or the two names are exchanged.
  [[nodiscard]] Status rename(const std::string& from, const std::string& to) const;
  [[nodiscard]] Status remove_all(const std::string& path) const;
  /// An error with the needed and the free bytes unless `bytes` more fit on the disk of `path`.
  [[nodiscard]] Status check_free(const std::string& path, std::int64_t bytes) const;
  /// Free bytes on the disk of `path`.
  [[nodiscard]] Result<std::int64_t> free_bytes(const std::string& path) const;

 private:
  [[nodiscard]] Error no_space_or(const std::string& path, std::int64_t bytes, int code) const;
  [[nodiscard]] int fault(std::string_view operation, const std::string& path) const {
    return fault_ ? fault_(operation, path) : 0;
  }
  Fault fault_;
};

/// "12.3 GB", "4.1 MB", "3.2 kB", "0 bytes".
[[nodiscard]] std::string size_text(std::int64_t bytes);

}  // namespace echelon
