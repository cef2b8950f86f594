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
  /// Asked before each operation ("create", "write", "sync", "rename" ...): 0, or the errno it is
  /// to fail with. What it throws ends the caller there, as a crash would.
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
  /// A new file of so many bytes, the room for them set aside where the file system can.
  [[nodiscard]] Result<File> create(const std::string& path, std::int64_t bytes) const;
  /// An existing file, to write into.
  [[nodiscard]] Result<File> open(const std::string& path) const;
  [[nodiscard]] Status write(const File& file, std::int64_t offset, const void* data,
                             std::int64_t bytes) const;
  /// What was written is on the disk when this returns.
  [[nodiscard]] Status sync(const File& file) const;
  /// The same for the names in a directory.
  [[nodiscard]] Status sync_directory(const std::string& path) const;
  /// `to` must not exist, or is what `from` was before and the other way round.
  [[nodiscard]] Status rename(const std::string& from, const std::string& to) const;
  [[nodiscard]] Status remove_all(const std::string& path) const;
  /// An error that says what is needed and what is free unless `bytes` more fit beside `path`.
  [[nodiscard]] Status check_free(const std::string& path, std::int64_t bytes) const;

 private:
  [[nodiscard]] int fault(std::string_view operation, const std::string& path) const {
    return fault_ ? fault_(operation, path) : 0;
  }
  Fault fault_;
};

}  // namespace echelon
