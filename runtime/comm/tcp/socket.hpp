// TCP sockets with waits until a deadline, over IPv4 and IPv6.
#pragma once

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/base/result.hpp"

namespace echelon::tcp {

/// Owns a descriptor; -1: none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

/// When a wait ends.
struct WaitLimit {
  std::chrono::steady_clock::time_point until;
  const volatile std::sig_atomic_t* interrupted = nullptr;  ///< a signal ends it as well
  [[nodiscard]] bool over() const;
  /// Milliseconds for poll(): at most a tenth of a second, so that signals are seen.
  [[nodiscard]] int round() const;
};

/// Whether the address is local to each machine.
[[nodiscard]] bool is_loopback(const std::string& address);

/// Listens for those that connect to `address` (of this machine), on the interface that has it; on
/// every interface, with IPv4 and IPv6 if available, where none has it (a name that is translated
/// on the way) or only the loopback interface has the name. Port 0: any free one. Environment
/// error: the port is taken.
[[nodiscard]] Result<Socket> listen_for(const std::string& address, int port);
/// Listens on any free port of the interface of a connection; as above if that is the loopback
/// interface and `master`, the address of rank 0, is not.
[[nodiscard]] Result<Socket> listen_beside(const Socket& connection, const std::string& master);
[[nodiscard]] int port_of(const Socket& listener);
/// The next pending connection, if any.
[[nodiscard]] Socket accept_from(const Socket& listener);

/// One attempt; nothing, with the reason in `why`, if it fails.
[[nodiscard]] Socket connect_to(const std::string& address, int port, const WaitLimit& wait_limit,
                                std::string& why);
/// Address of the other end: "10.0.0.7".
[[nodiscard]] std::string address_of_peer(const Socket& socket);

/// Reads available data, at most `bytes`: their number, 0 at the end, or minus errno; EAGAIN if
/// none.
[[nodiscard]] std::int64_t receive_some(int descriptor, std::byte* to, std::uint64_t bytes);

/// Transfers all of it, or returns false: the other end closed, an error, or a timeout.
[[nodiscard]] bool write_all(const Socket& socket, const void* data, std::size_t bytes,
                             const WaitLimit& wait_limit);
[[nodiscard]] bool read_all(const Socket& socket, void* data, std::size_t bytes,
                            const WaitLimit& wait_limit);

/// Options of every connection of a run: messages are sent at once, and the loss of the other
/// machine is detected within half a minute.
void prepare(const Socket& socket);

}  // namespace echelon::tcp
