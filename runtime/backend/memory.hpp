// Memory of a rank, allocated once before the first step and accounted by category.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/cost.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon {

/// A source of memory blocks.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Zeroed, aligned to 64 bytes or more; null if the memory is exhausted.
  [[nodiscard]] virtual void* allocate(std::int64_t bytes) = 0;
  virtual void free(void* block) = 0;
  /// Memory that can still be allocated, if known.
  [[nodiscard]] virtual std::optional<Bytes> available() const { return {}; }
};
[[nodiscard]] MemorySource& host_memory();

/// An allocation that failed.
class OutOfMemory : public RunFailure {
 public:
  OutOfMemory(const std::string& what, Bytes MemoryBreakdown::*part, std::optional<Bytes> available)
      : RunFailure(Kind::out_of_memory, what), part_(part), available_(available) {}
  [[nodiscard]] Bytes MemoryBreakdown::*part() const { return part_; }
  /// Memory held by the rank plus memory it could still allocate, if known.
  [[nodiscard]] std::optional<Bytes> available() const { return available_; }

 private:
  Bytes MemoryBreakdown::*part_;
  std::optional<Bytes> available_;
};

/// Blocks live as long as this object; they begin zeroed, aligned to 64 bytes.
class Memory {
 public:
  explicit Memory(std::string owner, MemorySource& source = host_memory())
      : owner_(std::move(owner)), source_(source) {}

  /// `part`: the entry of the breakdown that is charged; `what` names the block in the error if
  /// there is no memory for it (OutOfMemory, with the part and what is already allocated).
  template <class T>
  [[nodiscard]] T* allocate(Bytes MemoryBreakdown::*part, std::int64_t count, const char* what) {
    return static_cast<T*>(block(part, count * static_cast<std::int64_t>(sizeof(T)), what));
  }
  /// Adds memory that libraries allocated.
  void count(Bytes MemoryBreakdown::*part, Bytes taken) { held_.*part += taken; }
  [[nodiscard]] const MemoryBreakdown& held() const { return held_; }

 private:
  struct Free {
    MemorySource* source;
    void operator()(void* block) const { source->free(block); }
  };
  [[nodiscard]] void* block(Bytes MemoryBreakdown::*part, std::int64_t bytes, const char* what);

  std::string owner_;
  MemorySource& source_;
  MemoryBreakdown held_;
  std::vector<std::unique_ptr<void, Free>> blocks_;
};

}  // namespace echelon
