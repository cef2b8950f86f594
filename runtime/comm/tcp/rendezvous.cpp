// On each connection the connecting side sends a JoinRequest and receives a JoinReply: acceptance
// (from rank 0 with the address table) or the reason of the rejection.
#include "runtime/comm/tcp/rendezvous.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <list>
#include <thread>

#include "core/base/content_hash.hpp"

namespace echelon::tcp {
namespace {

using Clock = std::chrono::steady_clock;
using Mark = std::array<char, 32>;  // a fingerprint

/// Differs on a machine with another byte order, and with each change of the protocol.
constexpr std::uint64_t kMagic = 0x4543'4845'4C4F'4E01;

struct JoinRequest {
  std::uint64_t magic = kMagic;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t port = 0;  ///< where this process listens
  std::int32_t unused = 0;
  Mark run{};
  Mark plan{};
  Mark settings{};
  Mark machine{};
};
struct JoinReply {
  std::uint64_t magic = kMagic;
  std::uint32_t accepted = 0;
  std::uint32_t bytes = 0;  ///< of what follows: a table, or a reason
};
struct PeerAddress {
  std::array<char, 64> address{};  ///< empty: that of rank 0
  std::int64_t port = 0;
  Mark machine{};
};
static_assert(sizeof(JoinRequest) == 152 && sizeof(JoinReply) == 16 && sizeof(PeerAddress) == 104);

Mark mark_of(const std::string& text) {
  Mark mark{};
  const std::string hash = content_hash(text);
  std::memcpy(mark.data(), hash.data(), std::min(mark.size(), hash.size()));
  return mark;
}

/// Processes with both in common share cores; containers of one machine have different names.
std::string this_machine() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(in, boot);
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return boot + " " + name.data();
}

/// A connection per process needs as many descriptors; systems often begin with 1024.
void raise_limit_of_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// A client that has connected and sent part of its JoinRequest, or all of it.
struct PendingPeer {
  Socket socket;
  JoinRequest request;
  std::size_t received = 0;
  [[nodiscard]] bool is_ours() const {
    return received == sizeof request && request.magic == kMagic;
  }
};

class Joiner {
 public:
  explicit Joiner(const Rendezvous& rendezvous)
      : rendezvous_(rendezvous),
        wait_limit_{Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(rendezvous.limit.in(kSecond))),
                    rendezvous.interrupted} {
    own_.rank = rendezvous.rank;
    own_.size = rendezvous.size;
    own_.run = mark_of(rendezvous.run);
    own_.plan = mark_of(rendezvous.plan);
    own_.settings = mark_of(rendezvous.settings);
    own_.machine = mark_of(this_machine());
    connected_.peers.resize(static_cast<std::size_t>(rendezvous.size));
  }

  Result<Connected> join_run() {
    if (rendezvous_.size == 1) return std::move(connected_);
    raise_limit_of_files();
    const bool leads = rendezvous_.rank == 0;
    Result<Socket> listener = listen_for(rendezvous_.address, leads ? rendezvous_.port : 0);
    if (!listener) return listener.error();
    listener_ = *std::move(listener);
    own_.port = port_of(listener_);
    if (const Status done = leads ? join_as_leader() : join_as_member(); !done) return done.error();
    for (const Socket& socket : connected_.peers) {
      if (socket) prepare(socket);
    }
    return std::move(connected_);
  }

 private:
  Status join_as_leader();
  Status join_as_member();
  Status accepted(int first);
  Status read_request(PendingPeer& pending, int first);
  [[nodiscard]] std::string rejection_of(const JoinRequest& request, int first) const;
  void refuse(const Socket& socket, const std::string& reason) const;
  Result<Socket> reach(const std::string& address, int port, int rank) const;
  Result<std::string> read_reply(const Socket& socket, int rank, const WaitLimit& wait_limit) const;
  [[nodiscard]] Error missing_ranks_error(int first) const;
  [[nodiscard]] Socket& peer(int rank) { return connected_.peers[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::string where() const {
    return fmt::format("{}:{}", rendezvous_.address, rendezvous_.port);
  }
  void count_machines(const std::vector<PeerAddress>& table) {
    connected_.on_this_machine =
        static_cast<int>(std::count_if(table.begin(), table.end(), [&](const PeerAddress& entry) {
          return entry.machine == own_.machine;
        }));
  }

  const Rendezvous& rendezvous_;
  WaitLimit wait_limit_;
  JoinRequest own_;
  Socket listener_;
  Connected connected_;
  std::vector<JoinRequest> requests_;  ///< of rank 0: by rank
  std::vector<std::string> rejected_;  ///< refused processes, with reasons
};

void Joiner::refuse(const Socket& socket, const std::string& reason) const {
  JoinReply reply;
  reply.bytes = static_cast<std::uint32_t>(reason.size());
  const WaitLimit short_one{Clock::now() + std::chrono::seconds(1)};
  if (write_all(socket, &reply, sizeof reply, short_one)) {
    (void)write_all(socket, reason.data(), reason.size(), short_one);
  }
}

/// The reason of a rejection, or "".
std::string Joiner::rejection_of(const JoinRequest& request, int first) const {
  const std::string who = fmt::format("rank {} of {}", request.rank, request.size);
  if (request.run != own_.run) return who + " belongs to another run";
  if (request.size != own_.size) return fmt::format("{} tried to join a run of {}", who, own_.size);
  if (request.rank < first || request.rank >= own_.size) return who + " may not join here";
  if (connected_.peers[static_cast<std::size_t>(request.rank)]) return who + " has already joined";
  if (request.plan != own_.plan) return who + " has another plan than rank 0";
  if (request.settings != own_.settings) return who + " has other settings than rank 0";
  return "";
}

/// Reads on; judges a complete JoinRequest. Error: a process of this run that cannot take part.
Status Joiner::read_request(PendingPeer& pending, int first) {
  auto* const to = reinterpret_cast<std::byte*>(&pending.request) + pending.received;
  const std::int64_t got =
      receive_some(pending.socket.descriptor(), to, sizeof(JoinRequest) - pending.received);
  if (got == -EAGAIN) return Done{};
  if (got > 0) pending.received += static_cast<std::size_t>(got);
  const bool malformed = got <= 0 || (pending.received >= 8 && pending.request.magic != kMagic);
  if (!malformed && pending.received < sizeof(JoinRequest)) return Done{};
  const std::string from = address_of_peer(pending.socket);
  if (malformed) {
    if (got > 0) rejected_.push_back("an unknown client at " + from);
    pending.socket.close();
    return Done{};
  }
  const std::string fault = rejection_of(pending.request, first);
  if (fault.empty()) {
    const auto rank = static_cast<std::size_t>(pending.request.rank);
    requests_[rank] = pending.request;
    peer(pending.request.rank) = std::move(pending.socket);
    return Done{};
  }
  const std::string reason = fault + " (from " + from + ")";
  refuse(pending.socket, reason);
  pending.socket.close();
  rejected_.push_back(reason);
  if (pending.request.run != own_.run || rendezvous_.rank != 0) return Done{};
  return input_error(where(), reason, "the same command for every process of the run");
}

/// Accepts all missing ranks from `first` on.
Status Joiner::accepted(int first) {
  requests_.resize(connected_.peers.size());
  std::list<PendingPeer> pending_peers;
  const auto missing = [&] {
    return std::any_of(connected_.peers.begin() + first, connected_.peers.end(),
                       [](const Socket& socket) { return !socket; });
  };
  while (missing()) {
    if (wait_limit_.over()) return missing_ranks_error(first);
    std::vector<pollfd> files{{listener_.descriptor(), POLLIN, 0}};
    for (const PendingPeer& pending : pending_peers)
      files.push_back({pending.socket.descriptor(), POLLIN, 0});
    if (::poll(files.data(), files.size(), wait_limit_.round()) <= 0) continue;
    std::size_t at = 1;
    for (PendingPeer& pending : pending_peers) {
      if (files[at++].revents == 0) continue;
      if (const Status fine = read_request(pending, first); !fine) return fine;
    }
    pending_peers.remove_if([](const PendingPeer& pending) { return !pending.socket; });
    if (files[0].revents != 0) {
      if (Socket socket = accept_from(listener_))
        pending_peers.push_back({std::move(socket), {}, 0});
    }
  }
  return Done{};
}

Error Joiner::missing_ranks_error(int first) const {
  std::vector<int> missing;
  for (int rank = first; rank < rendezvous_.size; ++rank) {
    if (!connected_.peers[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  }
  constexpr std::size_t kMaxListed = 8;
  const std::size_t count = missing.size();
  missing.resize(std::min(count, kMaxListed));
  std::string text =
      rendezvous_.interrupted != nullptr && *rendezvous_.interrupted != 0
          ? "interrupted while waiting"
          : fmt::format("not all processes joined within {:g} s", rendezvous_.limit.in(kSecond));
  text += fmt::format("; missing: rank {}{}", fmt::join(missing, ", "),
                      count > kMaxListed ? fmt::format(" and {} more", count - kMaxListed) : "");
  if (!rejected_.empty()) {
    const std::size_t listed = std::min(rejected_.size(), kMaxListed);
    text += fmt::format("; refused: {}",
                        fmt::join(rejected_.begin(),
                                  rejected_.begin() + static_cast<std::ptrdiff_t>(listed), "; "));
  }
  return environment_error(where(), text);
}

Status Joiner::join_as_leader() {
  constexpr int kFirst = 1;
  peer(0) = Socket();
  const Status all = accepted(kFirst);
  if (!all) {
    for (int rank = kFirst; rank < rendezvous_.size; ++rank) {
      if (peer(rank)) refuse(peer(rank), all.error().found);
    }
    return all;
  }
  std::vector<PeerAddress> table(static_cast<std::size_t>(rendezvous_.size));
  table[0].machine = own_.machine;
  for (int rank = kFirst; rank < rendezvous_.size; ++rank) {
    PeerAddress& entry = table[static_cast<std::size_t>(rank)];
    const JoinRequest& request = requests_[static_cast<std::size_t>(rank)];
    const std::string address = address_of_peer(peer(rank));
    if (!is_loopback(address)) address.copy(entry.address.data(), entry.address.size() - 1);
    entry.port = request.port;
    entry.machine = request.machine;
  }
  JoinReply reply;
  reply.accepted = 1;
  reply.bytes = static_cast<std::uint32_t>(table.size() * sizeof(PeerAddress));
  for (int rank = kFirst; rank < rendezvous_.size; ++rank) {
    if (write_all(peer(rank), &reply, sizeof reply, wait_limit_) &&
        write_all(peer(rank), table.data(), reply.bytes, wait_limit_)) {
      continue;
    }
    return environment_error(where(), fmt::format("rank {} left before the run began", rank));
  }
  count_machines(table);
  return Done{};
}

/// Retries until the peer listens, then sends the JoinRequest.
Result<Socket> Joiner::reach(const std::string& address, int port, int rank) const {
  const std::string target = fmt::format("{}:{}", address, port);
  std::string why = "no answer";
  while (!wait_limit_.over()) {
    Socket socket = connect_to(address, port, wait_limit_, why);
    if (socket && write_all(socket, &own_, sizeof own_, wait_limit_)) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(50, wait_limit_.round())));
  }
  const bool cancelled = rendezvous_.interrupted != nullptr && *rendezvous_.interrupted != 0;
  return environment_error(
      target,
      cancelled
          ? fmt::format("interrupted while waiting for rank {}", rank)
          : fmt::format("no rank {} within {:g} s: {}", rank, rendezvous_.limit.in(kSecond), why),
      rank == 0 ? "MASTER_ADDR and MASTER_PORT are those of rank 0, which all processes reach"
                : "");
}

/// The payload of an acceptance.
Result<std::string> Joiner::read_reply(const Socket& socket, int rank,
                                       const WaitLimit& wait_limit) const {
  JoinReply reply;
  const std::string target = rank == 0 ? where() : fmt::format("rank {}", rank);
  if (!read_all(socket, &reply, sizeof reply, wait_limit)) {
    return environment_error(
        target,
        wait_limit.over()
            ? fmt::format(
                  "connected to rank {}, but only some of the processes joined within {:g} s", rank,
                  rendezvous_.limit.in(kSecond))
            : fmt::format("rank {} left before the run began", rank));
  }
  constexpr std::uint32_t kMaxBytes = 1 << 30;
  if (reply.magic != kMagic || reply.bytes > kMaxBytes) {
    return environment_error(target, "the service there is not an Echelon rank 0",
                             "choose another MASTER_PORT for all processes");
  }
  std::string text(reply.bytes, '\0');
  if (!read_all(socket, text.data(), text.size(), wait_limit)) {
    return environment_error(target, fmt::format("rank {} left before the run began", rank));
  }
  if (reply.accepted != 0) return text;
  return input_error(target, fmt::format("rank {} refuses: {}", rank, text),
                     "the same command for every process of the run");
}

Status Joiner::join_as_member() {
  Result<Socket> first = reach(rendezvous_.address, rendezvous_.port, 0);
  if (!first) return first.error();
  peer(0) = *std::move(first);
  // Rank 0 may have started later: it reports its timeout and the missing ranks.
  WaitLimit longer = wait_limit_;
  longer.until += std::chrono::seconds(2) + (wait_limit_.until - Clock::now());
  const Result<std::string> text = read_reply(peer(0), 0, longer);
  if (!text) return text.error();
  std::vector<PeerAddress> table(static_cast<std::size_t>(rendezvous_.size));
  if (text->size() != table.size() * sizeof(PeerAddress)) {
    return environment_error(where(), "rank 0 reports another number of processes");
  }
  std::memcpy(table.data(), text->data(), text->size());
  wait_limit_.until = std::max(wait_limit_.until, Clock::now() + std::chrono::seconds(10));
  for (int rank = 1; rank < rendezvous_.rank; ++rank) {
    const PeerAddress& entry = table[static_cast<std::size_t>(rank)];
    const std::string address(entry.address.data());
    Result<Socket> socket =
        reach(address.empty() ? rendezvous_.address : address, static_cast<int>(entry.port), rank);
    if (!socket) return socket.error();
    peer(rank) = *std::move(socket);
  }
  if (const Status all = accepted(rendezvous_.rank + 1); !all) return all;
  JoinReply reply;
  reply.accepted = 1;
  for (int rank = rendezvous_.rank + 1; rank < rendezvous_.size; ++rank) {
    if (write_all(peer(rank), &reply, sizeof reply, wait_limit_)) continue;
    return environment_error(where(), fmt::format("rank {} left before the run began", rank));
  }
  for (int rank = 1; rank < rendezvous_.rank; ++rank) {
    if (const auto let_in = read_reply(peer(rank), rank, wait_limit_); !let_in)
      return let_in.error();
  }
  count_machines(table);
  return Done{};
}

}  // namespace

Result<Connected> join_run(const Rendezvous& rendezvous) { return Joiner(rendezvous).join_run(); }

}  // namespace echelon::tcp
