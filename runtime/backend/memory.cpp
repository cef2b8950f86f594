#include "runtime/backend/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace echelon {
namespace {

std::string_view name_of(Bytes MemoryBreakdown::*part) {
  return std::find_if(kMemoryParts.begin(), kMemoryParts.end(),
                      [&](const NamedMemory& each) { return each.part == part; })
      ->name;
}

class HostMemory final : public MemorySource {
 public:
  void* allocate(std::int64_t bytes) override {
    constexpr std::int64_t kBlockAlignment = 64;
    const std::int64_t rounded = (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
    void* block = std::aligned_alloc(static_cast<std::size_t>(kBlockAlignment),
                                     static_cast<std::size_t>(rounded));
    if (block != nullptr) std::memset(block, 0, static_cast<std::size_t>(rounded));
    return block;
  }
  void free(void* block) override { std::free(block); }
};

}  // namespace

MemorySource& host_memory() {
  static HostMemory memory;
  return memory;
}

void* Memory::block(Bytes MemoryBreakdown::*part, std::int64_t bytes, const char* what) {
  if (bytes == 0) return nullptr;
  void* block = source_.allocate(bytes);
  if (block == nullptr) {
    std::optional<Bytes> available = source_.available();
    if (available) *available += held_.total();
    throw OutOfMemory(
        fmt::format("{}: no memory for {} ({:.1f} MiB of {}); {:.1f} MiB are already allocated",
                    owner_, what, static_cast<double>(bytes) / 1048576.0, name_of(part),
                    held_.total().in(1_MiB)),
        part, available);
  }
  blocks_.emplace_back(block, Free{&source_});
  held_.*part += Bytes{static_cast<double>(bytes)};
  return block;
}

}  // namespace echelon
