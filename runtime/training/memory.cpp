#include "runtime/training/memory.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "runtime/failure.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kBlockAlignment = 64;

}  // namespace

void Memory::Free::operator()(void* block) const { std::free(block); }

void* Memory::block(Bytes MemoryBreakdown::*part, std::int64_t bytes, const char* what) {
  if (bytes == 0) return nullptr;
  const std::int64_t rounded = (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  void* block = std::aligned_alloc(static_cast<std::size_t>(kBlockAlignment),
                                   static_cast<std::size_t>(rounded));
  if (block == nullptr) {
    throw RunFailure(
        RunFailure::Kind::out_of_memory,
        fmt::format("{}: no memory for {} ({:.1f} MiB); {:.1f} MiB are held already", owner_, what,
                    static_cast<double>(bytes) / 1048576.0, held_.total().in(1_MiB)));
  }
  blocks_.emplace_back(block);
  std::memset(block, 0, static_cast<std::size_t>(rounded));
  held_.*part += Bytes{static_cast<double>(bytes)};
  return block;
}

}  // namespace echelon
