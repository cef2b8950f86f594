// A folder for the files two programs hand each other.
#pragma once

#include <string>

#include "core/base/result.hpp"

namespace echelon::cli {

/// A folder that is removed with all it holds. Who is killed leaves his behind, unlocked: the next
/// one who makes one removes it.
class Scratch {
 public:
  static Result<Scratch> make();
  Scratch(Scratch&& other) noexcept;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();
  [[nodiscard]] std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  Scratch(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_ = -1;  ///< descriptor of the folder, locked while this lives
};

}  // namespace echelon::cli
