// What processes tell each other besides the messages of their channels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace echelon::tcp {

/// In MessageHeader::channel. Goodbye messages: a byte that encodes how a run ended, and the
/// reason; their number is the rank that ends.
constexpr std::uint32_t kGoodbyes = 0xffff'ffff;
constexpr std::uint64_t kLongestGoodbye = 1 << 16;
/// Status messages of the watchdogs.
constexpr std::uint32_t kStatuses = 0xffff'fffe;
/// From rank 0 to members of a star, whose channel is the number: for whom it waits. The number of
/// the ranks, then the ranks, as 32-bit integers.
constexpr std::uint32_t kAwaited = 0xffff'fffd;
constexpr std::size_t kMostAwaited = 64;  ///< ranks that are listed

}  // namespace echelon::tcp
