#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/runtime/cuda/kernels/memory.hpp"

namespace echelon::device {

void* allocate(std::size_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void release(void* memory) { std::free(memory); }
void copy_in(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void copy_out(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace echelon::device
