// A folder for the files two programs hand each other.
#pragma once

#include <string>

#include "core/result.hpp"

namespace echelon::cli {

/// A folder that is removed with all it holds.
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
  explicit Scratch(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace echelon::cli
