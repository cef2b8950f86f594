// Memory of the devices and pinned memory of the host; every use is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace echelon::standins {

inline constexpr int kPinned = -1;

/// The place of some bytes.
struct Location {
  int device = kPinned;
  int number = 0;  // of the allocation: none is used twice
};

/// Under the machine's lock.
class Allocations {
 public:
  /// nullptr: the device has no more.
  void* allocate(std::size_t bytes, int device);
  /// The fault of the access, if any.
  std::optional<std::string> release(void* memory, bool pinned);
  /// Of bytes that lie in one allocation as a whole.
  [[nodiscard]] std::optional<Location> find(const void* memory, std::size_t bytes) const;
  /// The reason why these are not `bytes` in one allocation of the device (with `or_pinned`, or of
  /// pinned memory); nothing if they are.
  [[nodiscard]] std::optional<std::string> wrong(const void* memory, std::size_t bytes, int device,
                                                 bool or_pinned = false) const;
  [[nodiscard]] std::size_t used(int device) const;
  [[nodiscard]] std::string left() const;
  [[nodiscard]] int made() const { return made_; }
  void clear() { all_.clear(); }

 private:
  struct Allocation {
    std::unique_ptr<unsigned char[]> memory;  // with guards before and behind
    std::size_t bytes = 0;
    Location location;
  };
  using All = std::map<std::uintptr_t, Allocation>;
  [[nodiscard]] All::const_iterator holder(const void* memory) const;

  All all_;  // by the first byte
  int made_ = 0;
};
Allocations& allocations();

bool overlap(const void* one, std::size_t one_bytes, const void* other, std::size_t other_bytes);

/// Reports bytes that are not in one allocation of the device.
void check_operand(const std::string& who, const void* memory, std::size_t bytes, int device,
                   bool or_pinned = false);

}  // namespace echelon::standins
