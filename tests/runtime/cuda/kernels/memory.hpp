// Memory of the device of kernel tests: the emulation's (memory_emulated.cpp), or a GPU's
// (memory_gpu.cpp). It has guards before and behind: NaN, which makes out-of-bounds reads change
// results, and compared in the end, which detects out-of-bounds writes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/support/catch.hpp"

namespace echelon::device {

void* allocate(std::size_t bytes);
void release(void* memory);
/// Both wait for all that was launched.
void copy_in(void* to, const void* from, std::size_t bytes);
void copy_out(void* to, const void* from, std::size_t bytes);

/// `shift`: offset in T from a multiple of 16 bytes, for kernels that must handle misalignment.
template <class T>
class Memory {
 public:
  explicit Memory(const std::vector<T>& content, std::size_t shift = 0)
      : count_(content.size()), front_(kGuard + shift) {
    all_ = allocate(bytes());
    std::vector<unsigned char> image(bytes(), kFill);
    const auto* const first = reinterpret_cast<const unsigned char*>(content.data());
    std::copy_n(first, count_ * sizeof(T), image.data() + front_ * sizeof(T));
    copy_in(all_, image.data(), bytes());
  }
  explicit Memory(std::size_t count) : Memory(std::vector<T>(count)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { release(all_); }

  T* data() { return static_cast<T*>(all_) + front_; }
  [[nodiscard]] std::vector<T> content() const {
    std::vector<unsigned char> image(bytes());
    copy_out(image.data(), all_, bytes());
    std::vector<T> values(count_);
    std::copy_n(image.data() + front_ * sizeof(T), count_ * sizeof(T),
                reinterpret_cast<unsigned char*>(values.data()));
    for (std::size_t i = 0; i < image.size(); ++i) {
      const bool inside = i >= front_ * sizeof(T) && i < (front_ + count_) * sizeof(T);
      if (!inside && image[i] != kFill) FAIL("a kernel wrote outside its memory");
    }
    return values;
  }

 private:
  static constexpr unsigned char kFill = 0xff;  // as numbers, NaN
  static constexpr std::size_t kGuard = 64;
  [[nodiscard]] std::size_t bytes() const { return (front_ + count_ + kGuard) * sizeof(T); }
  std::size_t count_;
  std::size_t front_;
  void* all_;
};

}  // namespace echelon::device
