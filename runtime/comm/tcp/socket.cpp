#include "runtime/comm/tcp/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace echelon::tcp {
namespace {

constexpr int kBacklog = 4096;

void set_option(int descriptor, int level, int name, int value) {
  ::setsockopt(descriptor, level, name, &value, sizeof value);  // all of them are optional
}

/// Waits for `events`; false on timeout.
bool wait_for(int descriptor, short events, const WaitLimit& wait_limit) {
  while (!wait_limit.over()) {
    pollfd file{descriptor, events, 0};
    if (::poll(&file, 1, wait_limit.round()) > 0) return true;
  }
  return false;
}

/// A socket that listens there; none, with errno, if it cannot.
Socket bound_to(const sockaddr* at, socklen_t length) {
  Socket socket(::socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket;
  set_option(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);  // skip TIME_WAIT
  if (at->sa_family == AF_INET6) set_option(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.descriptor(), at, length) == 0 &&
      ::listen(socket.descriptor(), kBacklog) == 0) {
    return socket;
  }
  const int why = errno;
  socket.close();
  errno = why;
  return socket;
}

Socket bound(int family, bool loopback, int port) {
  if (family == AF_INET6) {
    sockaddr_in6 at{};
    at.sin6_family = AF_INET6;
    at.sin6_port = htons(static_cast<std::uint16_t>(port));
    at.sin6_addr = loopback ? in6addr_loopback : in6addr_any;
    return bound_to(reinterpret_cast<const sockaddr*>(&at), sizeof at);
  }
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  at.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  return bound_to(reinterpret_cast<const sockaddr*>(&at), sizeof at);
}

std::string text_of(const sockaddr* at) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (at->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at)->sin_addr, text.data(),
                text.size());
  } else {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(at)->sin6_addr, text.data(),
                text.size());
  }
  const std::string address(text.data());
  constexpr const char* kMapped = "::ffff:";  // IPv4 on a dual-stack socket
  const bool mapped = address.starts_with(kMapped) && address.find('.') != std::string::npos;
  return mapped ? address.substr(std::strlen(kMapped)) : address;
}

/// On the interface that has the address, if one does and it is not the loopback interface.
Socket bound_by_name(const std::string& address, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  errno = EADDRNOTAVAIL;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0)
    return Socket();
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (is_loopback(text_of(each->ai_addr))) continue;
    Socket socket = bound_to(each->ai_addr, each->ai_addrlen);
    if (socket || errno == EADDRINUSE) return socket;
  }
  return Socket();
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

bool WaitLimit::over() const {
  return (interrupted != nullptr && *interrupted != 0) || std::chrono::steady_clock::now() >= until;
}

int WaitLimit::round() const {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      until - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 1, 100));
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

Result<Socket> listen_for(const std::string& address, int port) {
  const bool four = address == "localhost" || address == "127.0.0.1";
  const bool loopback = four || address == "::1";
  Socket socket;
  errno = 0;
  if (!loopback && !is_loopback(address)) socket = bound_by_name(address, port);
  if (!socket && errno != EADDRINUSE) socket = bound(four ? AF_INET : AF_INET6, loopback, port);
  // A machine without IPv6.
  if (!socket && !loopback && errno != EADDRINUSE) socket = bound(AF_INET, false, port);
  if (socket) return socket;
  const std::string where = address + ":" + std::to_string(port);
  if (errno != EADDRINUSE) return environment_error(where, std::strerror(errno));
  return environment_error(where, "the port is in use on the host of rank 0",
                           "another run, or another program; choose another MASTER_PORT for all "
                           "processes");
}

Result<Socket> listen_beside(const Socket& connection, const std::string& master) {
  sockaddr_storage at{};
  socklen_t length = sizeof at;
  auto* const here = reinterpret_cast<sockaddr*>(&at);
  ::getsockname(connection.descriptor(), here, &length);
  if (is_loopback(text_of(here))) return listen_for(is_loopback(master) ? master : "", 0);
  if (at.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(at).sin6_port = 0;
  else
    reinterpret_cast<sockaddr_in&>(at).sin_port = 0;
  if (Socket socket = bound_to(here, length)) return socket;
  return environment_error(text_of(here), std::strerror(errno));
}

int port_of(const Socket& listener) {
  sockaddr_storage at{};
  socklen_t length = sizeof at;
  ::getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&at), &length);
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(at).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(at).sin_port);
}

Socket accept_from(const Socket& listener) {
  return Socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Socket connect_to(const std::string& address, int port, const WaitLimit& wait_limit,
                  std::string& why) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_family = address == "localhost" ? AF_INET : AF_UNSPEC;  // as listened on
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (failed != 0) {
    why = ::gai_strerror(failed);
    return Socket();
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr && !wait_limit.over(); each = each->ai_next) {
    Socket socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    int error = ::connect(socket.descriptor(), each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      // A host that does not answer must not use up the time of the others.
      WaitLimit attempt = wait_limit;
      attempt.until =
          std::min(attempt.until, std::chrono::steady_clock::now() + std::chrono::seconds(5));
      socklen_t length = sizeof error;
      error = ETIMEDOUT;
      if (wait_for(socket.descriptor(), POLLOUT, attempt)) {
        ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
      }
    }
    if (error == 0) return socket;
    if (error == ETIMEDOUT && wait_limit.over()) break;  // only the last attempt was cut short
    why = std::strerror(error);
  }
  return Socket();
}

std::string address_of_peer(const Socket& socket) {
  sockaddr_storage at{};
  socklen_t length = sizeof at;
  auto* const there = reinterpret_cast<sockaddr*>(&at);
  if (::getpeername(socket.descriptor(), there, &length) != 0) return "";
  return text_of(there);
}

std::int64_t receive_some(int descriptor, std::byte* to, std::uint64_t bytes) {
  const ssize_t got = ::recv(descriptor, to, bytes, MSG_DONTWAIT);
  if (got >= 0) return got;
  return errno == EINTR ? -EAGAIN : -errno;
}

bool write_all(const Socket& socket, const void* data, std::size_t bytes,
               const WaitLimit& wait_limit) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = ::send(socket.descriptor(), at, bytes, MSG_NOSIGNAL);
    if (written > 0) {
      at += written;
      bytes -= static_cast<std::size_t>(written);
    } else if (errno != EINTR &&
               (errno != EAGAIN || !wait_for(socket.descriptor(), POLLOUT, wait_limit))) {
      return false;
    }
  }
  return true;
}

bool read_all(const Socket& socket, void* data, std::size_t bytes, const WaitLimit& wait_limit) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket.descriptor(), at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= static_cast<std::size_t>(got);
    } else if (got == 0 || (errno != EINTR && (errno != EAGAIN || !wait_for(socket.descriptor(),
                                                                            POLLIN, wait_limit)))) {
      return false;
    }
  }
  return true;
}

void prepare(const Socket& socket) {
  const int descriptor = socket.descriptor();
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);             // seconds
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);             // seconds
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 4);               // probes
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 30 * 1000);  // milliseconds
}

}  // namespace echelon::tcp
