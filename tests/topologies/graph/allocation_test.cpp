// Counts every allocation of this test program, to show that group() makes none.
#include <cstdlib>
#include <new>

#include "tests/topologies/support.hpp"

using namespace echelon;

namespace {
std::size_t allocations = 0;
}  // namespace

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
void* operator new(std::size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

TEST_CASE("group() allocates nothing") {
  const ClusterTopology cluster = cluster_of("gb200-nvl72", 576);
  const std::size_t before = allocations;
  BytesPerSecond sum;
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (int stride = 1; stride <= 36; ++stride) sum += cluster.group({ranks, stride}).inter;
  }
  const std::size_t after = allocations;
  CHECK(after == before);
  CHECK(sum > BytesPerSecond{});
}
