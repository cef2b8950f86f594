// CallHeader: the message by which a member announces its call, with the data if they are small.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/comm/call.hpp"

namespace echelon {

struct CallHeader {
  Call call;
  alignas(16) std::array<std::byte, 224> data;
  [[nodiscard]] static constexpr bool holds(std::int64_t bytes) {
    return bytes <= static_cast<std::int64_t>(sizeof data);
  }
  /// Takes data that fit.
  void announce(const Call& announced, const void* from, std::int64_t bytes) {
    call = announced;
    if (from != nullptr && holds(bytes) && bytes > 0) {
      std::memcpy(data.data(), from, static_cast<std::size_t>(bytes));
    }
  }
};
static_assert(std::is_trivially_copyable_v<CallHeader> && sizeof(CallHeader) == 256);

}  // namespace echelon
