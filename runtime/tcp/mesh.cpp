#include "runtime/tcp/mesh.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/expects.hpp"
#include "runtime/tcp/mesh_line.hpp"

namespace echelon::tcp {
namespace {

/// The line of what meshes tell each other: a byte that says how a run ended, and why.
constexpr std::uint32_t kWords = 0xffff'ffff;
constexpr std::uint64_t kLongestWord = 1 << 16;
constexpr std::uint64_t kLongestMessage = std::uint64_t{1} << 48;
constexpr std::byte kFine{0};

}  // namespace

Mesh::Mesh(Crew& crew, int rank, std::vector<Socket> peers)
    : crew_(crew), rank_(rank), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  EXPECTS(wake_ >= 0, "a process may have a few files");
  EXPECTS(!crew.directed(), "processes go on by themselves");
  for (std::size_t each = 0; each < peers.size(); ++each) {
    auto peer = std::make_unique<Peer>();
    peer->rank = static_cast<int>(each);
    peer->open = static_cast<bool>(peers[each]);
    if (peer->open) peer->address = address_of_peer(peers[each]);
    peer->socket = std::move(peers[each]);
    peers_.push_back(std::move(peer));
  }
}

Mesh::~Mesh() {
  if (thread_.joinable()) finish(Seconds{});
  ::close(wake_);
}

std::unique_ptr<Messages> Mesh::line(int number, const Group& group) {
  auto line = std::make_unique<MeshLine>(*this, static_cast<std::uint32_t>(number), group);
  lines_.resize(std::max(lines_.size(), static_cast<std::size_t>(number) + 1));
  lines_[static_cast<std::size_t>(number)] = line.get();
  return line;
}

void Mesh::start() {
  thread_ = std::jthread([this] { live(); });
}

void Mesh::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

void Mesh::wake_lines() {
  for (MeshLine* line : lines_) {
    if (line != nullptr) line->wake();
  }
}

/// Under the lock of the peer. False: the socket takes no more for now.
bool Mesh::write_some(Peer& to, Parcel& parcel) {
  const std::size_t all = sizeof(Head) + parcel.head.bytes;
  const std::byte* data = parcel.own.empty() ? parcel.data : parcel.own.data();
  while (parcel.written < all) {
    std::array<iovec, 2> parts{};
    const std::size_t of_head = std::min(parcel.written, sizeof(Head));
    const std::size_t of_data = parcel.written - of_head;
    parts[0] = {reinterpret_cast<std::byte*>(&parcel.head) + of_head, sizeof(Head) - of_head};
    parts[1] = {const_cast<std::byte*>(data) + of_data, parcel.head.bytes - of_data};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t count = ::sendmsg(to.socket.descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count < 0) {
      to.deaf = true;  // why, the reading side will see
      return false;
    }
    parcel.written += static_cast<std::size_t>(count);
  }
  return true;
}

void Mesh::send(Peer& to, Parcel parcel) {
  const std::lock_guard lock(to.mutex);
  if (!to.deaf && to.out.empty() && write_some(to, parcel)) return;
  if (parcel.line != nullptr) parcel.line->under_way(parcel.member);
  to.out.push_back(std::move(parcel));
  to.writes = !to.deaf;
  wake();
}

void Mesh::flush(Peer& to) {
  const std::lock_guard lock(to.mutex);
  while (!to.deaf && !to.out.empty() && write_some(to, to.out.front())) {
    const Parcel& done = to.out.front();
    if (done.line != nullptr) done.line->sent(done.member);
    to.out.pop_front();
  }
  to.writes = !to.deaf && !to.out.empty();
  if (finishing_ && !to.writes) ::shutdown(to.socket.descriptor(), SHUT_WR);
}

void Mesh::abandon(const MeshLine& line) {
  for (const auto& each : peers_) {
    const std::lock_guard lock(each->mutex);
    for (Parcel& parcel : each->out) {
      if (parcel.line != &line || !parcel.own.empty()) continue;
      parcel.own.assign(parcel.data, parcel.data + parcel.head.bytes);
    }
  }
}

/// The thread.
void Mesh::live() {
  try {
    serve();
  } catch (...) {
    crew_.stop(as_run_failure(std::current_exception()));
  }
}

void Mesh::serve() {
  std::vector<pollfd> files;
  std::vector<Peer*> whose;
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
    if (::poll(files.data(), files.size(), finishing ? kRound : -1) < 0) continue;
    if (files[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_, &count, sizeof count);
    }
    for (std::size_t i = 0; i < whose.size(); ++i) {
      const short seen = files[1 + i].revents;
      if ((seen & POLLOUT) != 0 || finishing_) flush(*whose[i]);
      if ((seen & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(*whose[i]);
    }
  }
}

/// One piece: others want to be read from as well.
void Mesh::read_from(Peer& from) {
  const int descriptor = from.socket.descriptor();
  if (from.head_read < sizeof(Head)) {
    auto* const to = reinterpret_cast<std::byte*>(&from.head) + from.head_read;
    const std::int64_t got = receive_some(descriptor, to, sizeof(Head) - from.head_read);
    if (got == -EAGAIN) return;
    if (got <= 0) return closed(from);
    from.head_read += static_cast<std::size_t>(got);
    if (from.head_read < sizeof(Head) || !begin_message(from)) return;
  }
  const std::int64_t got =
      from.line != nullptr
          ? from.line->read(from.member, from.left_to_read, descriptor)
          : receive_some(descriptor, from.word.data() + (from.word.size() - from.left_to_read),
                         from.left_to_read);
  if (got == -EAGAIN) return;
  if (got <= 0) return closed(from);
  from.left_to_read -= static_cast<std::uint64_t>(got);
  if (from.left_to_read > 0) return;
  from.head_read = 0;
  if (from.line == nullptr) hear_word(from);
}

/// False: it makes no sense, and nothing more is read.
bool Mesh::begin_message(Peer& from) {
  const Head& head = from.head;
  from.left_to_read = head.bytes;
  from.line = nullptr;
  std::string fault;
  if (head.line == kWords) {
    if (head.bytes > 0 && head.bytes <= kLongestWord) {
      from.word.resize(head.bytes);
      return true;
    }
    fault = "a word of that length";
  } else if (head.line >= lines_.size() || lines_[head.line] == nullptr ||
             lines_[head.line]->member_of(from.rank) < 0 || head.bytes == 0 ||
             head.bytes > kLongestMessage) {
    fault = "a message of no line";
  } else {
    from.line = lines_[head.line];
    from.member = from.line->member_of(from.rank);
    fault = from.line->begin(from.member, head);
  }
  if (fault.empty()) return true;
  crew_.stop(RunFailure::Kind::defect, "rank " + std::to_string(from.rank) + ": " + fault);
  from.left = true;
  closed(from);
  return false;
}

void Mesh::hear_word(Peer& from) {
  from.left = true;
  const std::byte how = from.word.front();
  if (how == kFine) return wake_lines();
  const std::string why(reinterpret_cast<const char*>(from.word.data()) + 1, from.word.size() - 1);
  {
    const std::lock_guard lock(told_mutex_);
    told_ = why;
  }
  crew_.stop(static_cast<RunFailure::Kind>(static_cast<int>(how) - 1), why);
}

/// Nothing more comes from there.
void Mesh::closed(Peer& from) {
  from.open = false;
  {
    const std::lock_guard lock(from.mutex);
    from.writes = false;
    from.deaf = true;
  }
  const bool lost = !from.left.exchange(true) && !finishing_;
  if (lost) {
    crew_.stop(RunFailure::Kind::peer_lost, "rank " + std::to_string(from.rank) +
                                                " is gone: the connection to it (" + from.address +
                                                ") ended in the middle of the run");
  } else {
    wake_lines();
  }
}

void Mesh::finish(Seconds limit) {
  std::vector<std::byte> word{kFine};
  if (crew_.stopping()) {
    constexpr Seconds kNotLong{2};
    limit = std::min(limit, kNotLong);
    const RunFailure failure = crew_.failure();
    std::string why = failure.what();
    const bool own = failure.kind() != RunFailure::Kind::peer_lost;
    const std::lock_guard lock(told_mutex_);
    const std::string mine = "rank " + std::to_string(rank_) + ": ";
    if (own && why != told_ && !why.starts_with(mine)) why = mine + why;
    why.resize(std::min<std::size_t>(why.size(), kLongestWord - 1));
    word.front() = static_cast<std::byte>(static_cast<int>(failure.kind()) + 1);
    for (const char c : why) word.push_back(static_cast<std::byte>(c));
  }
  for (const auto& each : peers_) {
    if (!each->socket) continue;
    Parcel parcel;
    parcel.head = {kWords, 0, word.size()};
    parcel.own = word;
    send(*each, std::move(parcel));
  }
  finish_until_ =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                             std::chrono::duration<double>(limit.in(kSecond)));
  finishing_ = true;
  wake();
  thread_.join();
}

}  // namespace echelon::tcp
