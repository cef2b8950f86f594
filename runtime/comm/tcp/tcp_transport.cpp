#include "runtime/comm/tcp/tcp_transport.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/content_hash.hpp"
#include "core/base/expects.hpp"
#include "runtime/comm/tcp/tcp_channel.hpp"
#include "runtime/comm/tcp/transport_notes.hpp"

namespace echelon::tcp {
namespace {

constexpr std::uint64_t kLongestMessage = std::uint64_t{1} << 48;
constexpr std::chrono::milliseconds kAwaitedRound{100};

}  // namespace

TcpTransport::TcpTransport(RunThreads& run_threads, int rank, std::vector<Socket> peers)
    : run_threads_(run_threads), rank_(rank), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  EXPECTS(wake_ >= 0, "a process may have a few files");
  EXPECTS(!run_threads.directed(), "processes go on by themselves");
  for (std::size_t each = 0; each < peers.size(); ++each) {
    auto peer = std::make_unique<Peer>();
    peer->rank = static_cast<int>(each);
    peer->open = static_cast<bool>(peers[each]);
    if (peer->open) peer->address = address_of_peer(peers[each]);
    peer->socket = std::move(peers[each]);
    peers_.push_back(std::move(peer));
  }
}

TcpTransport::~TcpTransport() {
  if (thread_.joinable()) finish(Seconds{});
  ::close(wake_);
}

std::unique_ptr<Messages> TcpTransport::channel(int number, const Group& group, Lines lines) {
  auto channel =
      std::make_unique<TcpChannel>(*this, static_cast<std::uint32_t>(number), group, lines);
  const bool leads = lines == Lines::star && rank_ == group.ranks.front();
  if (leads && group.size() > 2) awaited_.push_back({channel.get(), {}, {}});
  channels_.resize(std::max(channels_.size(), static_cast<std::size_t>(number) + 1));
  channels_[static_cast<std::size_t>(number)] = channel.get();
  return channel;
}

void TcpTransport::start() {
  thread_ = std::jthread([this] { run(); });
}

void TcpTransport::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

void TcpTransport::wake_channels() {
  for (TcpChannel* channel : channels_) {
    if (channel != nullptr) channel->wake();
  }
}

/// Under the lock of the peer. False: the socket accepts no more for now.
bool TcpTransport::write_some(Peer& to, Parcel& parcel) {
  const std::size_t all = sizeof(MessageHeader) + parcel.header.bytes;
  const std::byte* data = parcel.own.empty() ? parcel.data : parcel.own.data();
  while (parcel.written < all) {
    std::array<iovec, 2> parts{};
    const std::size_t of_header = std::min(parcel.written, sizeof(MessageHeader));
    const std::size_t of_data = parcel.written - of_header;
    parts[0] = {reinterpret_cast<std::byte*>(&parcel.header) + of_header,
                sizeof(MessageHeader) - of_header};
    parts[1] = {const_cast<std::byte*>(data) + of_data, parcel.header.bytes - of_data};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t count = ::sendmsg(to.socket.descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count < 0) {
      to.write_failed = true;  // the reading side finds the reason
      return false;
    }
    parcel.written += static_cast<std::size_t>(count);
  }
  return true;
}

void TcpTransport::send(Peer& to, Parcel parcel) {
  EXPECTS(to.socket, "messages travel between processes that are connected");
  if (parcel.channel != nullptr) {
    parcel.header.checksum = checksum({parcel.data, parcel.header.bytes});
    if (corrupt_ && corrupt_->exchange(false)) {
      parcel.own.assign(parcel.data, parcel.data + parcel.header.bytes);
      parcel.own.front() ^= std::byte{1};
    }
  }
  const std::lock_guard lock(to.mutex);
  if (!to.write_failed && to.out.empty() && write_some(to, parcel)) return;
  if (parcel.channel != nullptr) parcel.channel->under_way(parcel.member);
  to.out.push_back(std::move(parcel));
  to.writes = !to.write_failed;
  wake();
}

void TcpTransport::flush(Peer& to) {
  const std::lock_guard lock(to.mutex);
  while (!to.write_failed && !to.out.empty() && write_some(to, to.out.front())) {
    const Parcel& done = to.out.front();
    if (done.channel != nullptr) done.channel->sent(done.member);
    to.out.pop_front();
  }
  to.writes = !to.write_failed && !to.out.empty();
  if (finishing_ && !to.writes) ::shutdown(to.socket.descriptor(), SHUT_WR);
}

void TcpTransport::abandon(const TcpChannel& channel) {
  for (const auto& each : peers_) {
    const std::lock_guard lock(each->mutex);
    for (Parcel& parcel : each->out) {
      if (parcel.channel != &channel || !parcel.own.empty()) continue;
      parcel.own.assign(parcel.data, parcel.data + parcel.header.bytes);
    }
  }
}

/// The thread.
void TcpTransport::run() {
  try {
    serve();
  } catch (...) {
    run_threads_.stop(as_run_failure(std::current_exception()));
  }
}

void TcpTransport::serve() {
  std::vector<pollfd> files;
  std::vector<Peer*> whose;
  auto next_told = std::chrono::steady_clock::now() + kAwaitedRound;
  for (;;) {
    files.assign(1, {wake_, POLLIN, 0});
    whose.clear();
    for (const auto& each : peers_) {
      if (!each->open) continue;
      const int events = POLLIN | (each->writes ? POLLOUT : 0);
      files.push_back({each->socket.descriptor(), static_cast<short>(events), 0});
      whose.push_back(each.get());
    }
    const bool finishing = finishing_;
    if (finishing && (whose.empty() || std::chrono::steady_clock::now() > finish_until_)) return;
    constexpr int kRound = 50;  // milliseconds, at the end
    const int round = finishing          ? kRound
                      : awaited_.empty() ? -1
                                         : static_cast<int>(kAwaitedRound.count());
    if (::poll(files.data(), files.size(), round) < 0) continue;
    if (files[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_, &count, sizeof count);
    }
    for (std::size_t i = 0; i < whose.size(); ++i) {
      const short seen = files[1 + i].revents;
      if ((seen & POLLOUT) != 0 || finishing_) flush(*whose[i]);
      if ((seen & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(*whose[i]);
    }
    if (awaited_.empty() || finishing || std::chrono::steady_clock::now() < next_told) continue;
    tell_awaited();
    next_told = std::chrono::steady_clock::now() + kAwaitedRound;
  }
}

/// Reads one piece: other peers must be read as well.
void TcpTransport::read_from(Peer& from) {
  const int descriptor = from.socket.descriptor();
  if (from.header_read < sizeof(MessageHeader)) {
    auto* const to = reinterpret_cast<std::byte*>(&from.header) + from.header_read;
    const std::int64_t got = receive_some(descriptor, to, sizeof(MessageHeader) - from.header_read);
    if (got == -EAGAIN) return;
    if (got <= 0) return closed(from);
    from.header_read += static_cast<std::size_t>(got);
    if (from.header_read < sizeof(MessageHeader) || !begin_message(from)) return;
  }
  const std::int64_t got =
      from.channel != nullptr
          ? from.channel->read(from.member, from.left_to_read, descriptor)
          : receive_some(descriptor, from.note.data() + (from.note.size() - from.left_to_read),
                         from.left_to_read);
  if (got == -EAGAIN) return;
  if (got <= 0) return closed(from);
  from.left_to_read -= static_cast<std::uint64_t>(got);
  if (from.left_to_read > 0) return;
  from.header_read = 0;
  if (from.channel == nullptr) read_note(from);
}

/// False: the message is invalid, and reading stops.
bool TcpTransport::begin_message(Peer& from) {
  const MessageHeader& header = from.header;
  from.left_to_read = header.bytes;
  from.channel = nullptr;
  std::string fault;
  if (header.channel == kGoodbyes) {
    if (header.bytes > 0 && header.bytes <= kLongestGoodbye) {
      from.note.resize(header.bytes);
      return true;
    }
    fault = "a goodbye message of invalid length";
  } else if (header.channel == kStatuses) {
    if (header.bytes == sizeof(StatusMessage)) {
      from.note.resize(header.bytes);
      return true;
    }
    fault = "a status message of invalid length";
  } else if (header.channel == kAwaited) {
    constexpr std::uint64_t kWidth = sizeof(std::int32_t);
    if (header.bytes >= kWidth && header.bytes <= (kMostAwaited + 1) * kWidth &&
        header.bytes % kWidth == 0) {
      from.note.resize(header.bytes);
      return true;
    }
    fault = "a list of awaited ranks of invalid length";
  } else {
    TcpChannel* const channel =
        header.channel < channels_.size() ? channels_[header.channel] : nullptr;
    const std::optional<int> member =
        channel != nullptr ? channel->member_of(from.rank) : std::nullopt;
    if (!member) {
      fault = "a message for an unknown channel";
    } else if (header.bytes == 0 || header.bytes > kLongestMessage) {
      fault = "a message of invalid length";
    } else {
      from.channel = channel;
      from.member = *member;
      fault = channel->begin(*member, header);
    }
  }
  if (fault.empty()) return true;
  run_threads_.stop(RunFailure::Kind::defect, "rank " + std::to_string(from.rank) + ": " + fault);
  from.left = true;
  closed(from);
  return false;
}

/// A message whose checksum is another one on this side. TCP's own finds most, not all. Reading
/// goes on: the sender is to learn of it.
void TcpTransport::changed(const Peer& from) {
  run_threads_.stop(RunFailure::Kind::environment,
                    "a message of " + std::to_string(from.header.bytes) + " bytes from rank " +
                        std::to_string(from.rank) + " (" + from.address + ") to rank " +
                        std::to_string(rank_) +
                        " has changed on its way (other checksum): suspect the memory and the "
                        "network card of the two machines");
}

}  // namespace echelon::tcp
