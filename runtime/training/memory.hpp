// Memory of a rank, allocated once before the first step and counted by what it is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/cost.hpp"
#include "runtime/failure.hpp"

namespace echelon {

/// Where blocks come from.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Zeroed, aligned to 64 bytes or more; null: there is not so much.
  [[nodiscard]] virtual void* take(std::int64_t bytes) = 0;
  virtual void give_back(void* block) = 0;
  /// What could still be taken, where that is known.
  [[nodiscard]] virtual std::optional<Bytes> left() const { return {}; }
};
[[nodiscard]] MemorySource& host_memory();

/// A block there is no room for.
class OutOfMemory : public RunFailure {
 public:
  OutOfMemory(const std::string& what, Bytes MemoryBreakdown::*part, std::optional<Bytes> available)
      : RunFailure(Kind::out_of_memory, what), part_(part), available_(available) {}
  [[nodiscard]] Bytes MemoryBreakdown::*part() const { return part_; }
  /// What the rank holds and could still take, where that is known.
  [[nodiscard]] std::optional<Bytes> available() const { return available_; }

 private:
  Bytes MemoryBreakdown::*part_;
  std::optional<Bytes> available_;
};

/// Blocks live as long as this; they begin zeroed, aligned to 64 bytes.
class Memory {
 public:
  explicit Memory(std::string owner, MemorySource& source = host_memory())
      : owner_(std::move(owner)), source_(source) {}

  /// `part`: which entry of the breakdown pays; `what` names the block when there is no memory for
  /// it (OutOfMemory, with the part and what is held already).
  template <class T>
  [[nodiscard]] T* allocate(Bytes MemoryBreakdown::*part, std::int64_t count, const char* what) {
    return static_cast<T*>(block(part, count * static_cast<std::int64_t>(sizeof(T)), what));
  }
  /// What libraries took of the same memory.
  void count(Bytes MemoryBreakdown::*part, Bytes taken) { held_.*part += taken; }
  [[nodiscard]] const MemoryBreakdown& held() const { return held_; }

 private:
  struct Free {
    MemorySource* source;
    void operator()(void* block) const { source->give_back(block); }
  };
  [[nodiscard]] void* block(Bytes MemoryBreakdown::*part, std::int64_t bytes, const char* what);

  std::string owner_;
  MemorySource& source_;
  MemoryBreakdown held_;
  std::vector<std::unique_ptr<void, Free>> blocks_;
};

}  // namespace echelon
