// InputFile: a large file, read in parts at any offset.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/result.hpp"

namespace echelon {

/// A regular file that is open for reading. Parts may be read from several threads at once.
class InputFile {
 public:
  /// Environment error: missing, no permission, not a regular file.
  [[nodiscard]] static Result<InputFile> open(const std::string& path);
  InputFile(InputFile&& other) noexcept
      : path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)),
        size_(other.size_),
        bytes_read_(other.bytes_read_.load()) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Bytes [offset, offset + bytes) into `out`. Errors: a disk's error; the file became shorter.
  [[nodiscard]] Status read(std::int64_t offset, std::int64_t bytes, void* out) const;
  /// By all calls of read().
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_; }

 private:
  InputFile(std::string path, int fd, std::int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_;
  std::int64_t size_;
  mutable std::atomic<std::int64_t> bytes_read_ = 0;
};

}  // namespace echelon
