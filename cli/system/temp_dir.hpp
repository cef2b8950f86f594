// A temporary folder for the files that two programs exchange.
#pragma once

#include <string>

#include "core/base/result.hpp"

namespace echelon::cli {

/// A folder that is removed with its contents. A killed process leaves its folder behind, unlocked:
/// the next call of make() removes it.
class TempDir {
 public:
  static Result<TempDir> make();
  TempDir(TempDir&& other) noexcept;
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  TempDir& operator=(TempDir&&) = delete;
  ~TempDir();
  [[nodiscard]] std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  TempDir(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_ = -1;  ///< descriptor of the folder, locked while this lives
};

}  // namespace echelon::cli
