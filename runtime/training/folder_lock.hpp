// FolderLock: one run at a time writes checkpoints into a folder.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon {

/// A lock on the file "run.lock" in a folder, from its creation until it is destroyed or its
/// process ends, however it ends (flock(2)). The file stays, and names its last holder.
class FolderLock {
 public:
  static constexpr const char* kFile = "run.lock";

  /// Creates the folder where it is missing. While another run holds the lock, waits up to
  /// `patience`: it may be about to end, after a checkpoint; `waits` is told so, once. Environment
  /// error if it still holds it then, with its process and host, or if the file cannot be created.
  /// File systems without locks lock nothing.
  [[nodiscard]] static Result<FolderLock> take(
      const std::string& folder, Seconds patience,
      const std::function<void(const std::string&)>& waits);

  FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~FolderLock();

 private:
  explicit FolderLock(int file) : file_(file) {}
  int file_;
};

}  // namespace echelon
