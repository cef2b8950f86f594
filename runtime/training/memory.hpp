// Memory of a rank, allocated once before the first step and counted by what it is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cost.hpp"

namespace echelon {

/// Blocks live as long as this; they begin zeroed, aligned to 64 bytes.
class Memory {
 public:
  explicit Memory(std::string owner) : owner_(std::move(owner)) {}

  /// `part`: which entry of the breakdown pays; `what` names the block when there is no memory for
  /// it (RunFailure::out_of_memory, with what is held already).
  template <class T>
  [[nodiscard]] T* allocate(Bytes MemoryBreakdown::*part, std::int64_t count, const char* what) {
    return static_cast<T*>(block(part, count * static_cast<std::int64_t>(sizeof(T)), what));
  }
  [[nodiscard]] const MemoryBreakdown& held() const { return held_; }

 private:
  struct Free {
    void operator()(void* block) const;
  };
  [[nodiscard]] void* block(Bytes MemoryBreakdown::*part, std::int64_t bytes, const char* what);

  std::string owner_;
  MemoryBreakdown held_;
  std::vector<std::unique_ptr<void, Free>> blocks_;
};

}  // namespace echelon
