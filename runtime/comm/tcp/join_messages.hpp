// The messages of the rendezvous. On each connection the accepting side sends a Challenge, the
// connecting side a JoinRequest, and receives a JoinReply: acceptance (from rank 0 with the address
// table) or the reason of the rejection. Both are signed over the other side's nonce, so that
// neither can be replayed.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "core/base/content_hash.hpp"
#include "runtime/comm/tcp/run_token.hpp"
#include "runtime/comm/tcp/socket.hpp"

namespace echelon::tcp {

using Mark = std::array<char, 32>;  // a fingerprint

/// Differs on a machine with another byte order, and with each change of the protocol.
constexpr std::uint64_t kMagic = 0x4543'4845'4C4F'4E03;

struct Challenge {
  std::uint64_t magic = kMagic;
  Nonce nonce{};
};
struct JoinRequest {
  std::uint64_t magic = kMagic;
  Nonce nonce{};
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t port = 0;  ///< where this process listens
  std::int32_t unused = 0;
  Mark run{};
  Mark plan{};
  Mark settings{};
  Mark machine{};
  Signature signature{};  ///< of what is before it
};
constexpr std::size_t kSigned = offsetof(JoinRequest, signature);
struct JoinReply {
  std::uint64_t magic = kMagic;
  std::uint32_t accepted = 0;
  std::uint32_t bytes = 0;  ///< of what follows: a table, or a reason
  Signature signature{};    ///< of what follows, if accepted
};
struct PeerAddress {
  std::array<char, 64> address{};  ///< empty: that of rank 0
  std::int64_t port = 0;
  Mark machine{};
};
static_assert(sizeof(Challenge) == 24 && sizeof(JoinRequest) == 200 && sizeof(JoinReply) == 48 &&
              sizeof(PeerAddress) == 104);
inline Mark mark_of(const std::string& text) {
  Mark mark{};
  const std::string hash = content_hash(text);
  std::memcpy(mark.data(), hash.data(), std::min(mark.size(), hash.size()));
  return mark;
}

/// Processes with both in common share cores; containers of one machine have different names.
inline std::string this_machine() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(in, boot);
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return boot + " " + name.data();
}

/// A connection per process needs as many descriptors; systems often begin with 1024.
inline void raise_limit_of_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// A client that has connected and sent part of its JoinRequest, or all of it.
struct PendingPeer {
  Socket socket;
  Nonce nonce{};
  JoinRequest request;
  std::size_t received = 0;
  [[nodiscard]] bool is_ours() const {
    return received == sizeof request && request.magic == kMagic;
  }
};

}  // namespace echelon::tcp
