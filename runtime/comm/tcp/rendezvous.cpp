#include "runtime/comm/tcp/rendezvous.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <span>
#include <thread>

#include "runtime/comm/tcp/join_messages.hpp"

namespace echelon::tcp {
namespace {

using Clock = std::chrono::steady_clock;
/// Of a rejection.
constexpr std::size_t kLongestReason = 1 << 12;
/// Clients that have connected and not yet sent their request: the oldest of more are dropped.
constexpr std::size_t kMostPending = 256;

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
    if (const Status usable = check_token(rendezvous_.token); !usable) return usable.error();
    if (leads) {
      Result<Socket> listener = listen_for(rendezvous_.address, rendezvous_.port);
      if (!listener) return listener.error();
      listener_ = *std::move(listener);
    }
    if (const Status done = leads ? join_as_leader() : join_as_member(); !done) return done.error();
    for (const Socket& socket : connected_.peers) {
      if (socket) prepare(socket);
    }
    return std::move(connected_);
  }

 private:
  Status join_as_leader();
  Status join_as_member();
  Status accepted();
  Status read_request(PendingPeer& pending);
  [[nodiscard]] std::string rejection_of(const JoinRequest& request) const;
  void refuse(const Socket& socket, const std::string& reason) const;
  void accept_stranger(std::list<PendingPeer>& pending_peers);
  Status let_in(const Socket& socket, const JoinRequest& request, std::span<const std::byte> text);
  Result<Socket> reach(const std::string& address, int port, int rank);
  Result<bool> introduce(const Socket& socket, int rank, std::string& why);
  [[nodiscard]] Error no_echelon_error(int rank) const {
    return environment_error(rank == 0 ? where() : fmt::format("rank {}", rank),
                             "the service there is not an Echelon rank " + std::to_string(rank),
                             "choose another MASTER_PORT for all processes");
  }
  Result<std::string> read_reply(const Socket& socket, int rank, const WaitLimit& wait_limit) const;
  [[nodiscard]] Error missing_ranks_error() const;
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
  std::vector<int> awaited_;           ///< ranks that connect to this one, ascending
  std::vector<JoinRequest> requests_;  ///< accepted ones, by rank
  std::map<int, Nonce> nonces_;        ///< sent, by rank of the receiver
  std::vector<std::string> rejected_;  ///< refused processes, with reasons
};

void Joiner::refuse(const Socket& socket, const std::string& whole_reason) const {
  const std::string reason = whole_reason.substr(0, kLongestReason);
  JoinReply reply;
  reply.bytes = static_cast<std::uint32_t>(reason.size());
  const WaitLimit short_one{Clock::now() + std::chrono::seconds(1)};
  if (write_all(socket, &reply, sizeof reply, short_one)) {
    (void)write_all(socket, reason.data(), reason.size(), short_one);
  }
}

/// The reason of a rejection, or "".
std::string Joiner::rejection_of(const JoinRequest& request) const {
  const std::string who = fmt::format("rank {} of {}", request.rank, request.size);
  if (request.run != own_.run) return who + " belongs to another run";
  if (request.size != own_.size) return fmt::format("{} tried to join a run of {}", who, own_.size);
  if (!std::binary_search(awaited_.begin(), awaited_.end(), request.rank))
    return who + " may not join here";
  if (connected_.peers[static_cast<std::size_t>(request.rank)]) return who + " has already joined";
  if (request.plan != own_.plan) return who + " has another plan than rank 0";
  if (request.settings != own_.settings) return who + " has other settings than rank 0";
  return "";
}

/// Reads on; judges a complete JoinRequest. Error: a process of this run that cannot take part.
Status Joiner::read_request(PendingPeer& pending) {
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
  const auto* const bytes = reinterpret_cast<const std::byte*>(&pending.request);
  if (!same(sign(rendezvous_.token, pending.nonce, {bytes, kSigned}), pending.request.signature)) {
    const std::string reason = fmt::format("a process with another {}", kTokenVariable);
    refuse(pending.socket, reason);
    pending.socket.close();
    rejected_.push_back(reason + " at " + from);
    return Done{};
  }
  const std::string fault = rejection_of(pending.request);
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

/// Accepts all awaited ranks.
Status Joiner::accepted() {
  requests_.resize(connected_.peers.size());
  std::list<PendingPeer> pending_peers;
  const auto missing = [&] {
    return std::any_of(awaited_.begin(), awaited_.end(), [&](int rank) { return !peer(rank); });
  };
  while (missing()) {
    if (wait_limit_.over()) return missing_ranks_error();
    std::vector<pollfd> files{{listener_.descriptor(), POLLIN, 0}};
    for (const PendingPeer& pending : pending_peers)
      files.push_back({pending.socket.descriptor(), POLLIN, 0});
    if (::poll(files.data(), files.size(), wait_limit_.round()) <= 0) continue;
    std::size_t at = 1;
    for (PendingPeer& pending : pending_peers) {
      if (files[at++].revents == 0) continue;
      if (const Status fine = read_request(pending); !fine) return fine;
    }
    pending_peers.remove_if([](const PendingPeer& pending) { return !pending.socket; });
    if (files[0].revents != 0) accept_stranger(pending_peers);
  }
  return Done{};
}

/// Whoever connects gets a challenge. Where the process has no descriptor left, the oldest of those
/// that have only connected makes room, and the loop pauses, since the listener stays ready.
void Joiner::accept_stranger(std::list<PendingPeer>& pending_peers) {
  if (pending_peers.size() >= kMostPending) pending_peers.pop_front();
  PendingPeer pending{accept_from(listener_), new_nonce(), {}, 0};
  if (!pending.socket) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    if (!pending_peers.empty()) pending_peers.pop_front();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return;
  }
  const Challenge challenge{kMagic, pending.nonce};
  const WaitLimit at_once{Clock::now() + std::chrono::milliseconds(100)};
  if (write_all(pending.socket, &challenge, sizeof challenge, at_once))
    pending_peers.push_back(std::move(pending));
}

/// Accepts the sender of the request, with `text` for it.
Status Joiner::let_in(const Socket& socket, const JoinRequest& request,
                      std::span<const std::byte> text) {
  JoinReply reply;
  reply.accepted = 1;
  reply.bytes = static_cast<std::uint32_t>(text.size());
  reply.signature = sign(rendezvous_.token, request.nonce, text);
  if (write_all(socket, &reply, sizeof reply, wait_limit_) &&
      write_all(socket, text.data(), text.size(), wait_limit_)) {
    return Done{};
  }
  return environment_error(where(), fmt::format("rank {} left before the run began", request.rank));
}

Error Joiner::missing_ranks_error() const {
  std::vector<int> missing;
  for (const int rank : awaited_) {
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
  for (int rank = 1; rank < rendezvous_.size; ++rank) awaited_.push_back(rank);
  const Status all = accepted();
  if (!all) {
    for (const int rank : awaited_) {
      if (peer(rank)) refuse(peer(rank), all.error().found);
    }
    return all;
  }
  std::vector<PeerAddress> table(static_cast<std::size_t>(rendezvous_.size));
  table[0].machine = own_.machine;
  for (const int rank : awaited_) {
    PeerAddress& entry = table[static_cast<std::size_t>(rank)];
    const JoinRequest& request = requests_[static_cast<std::size_t>(rank)];
    const std::string address = address_of_peer(peer(rank));
    if (!is_loopback(address)) address.copy(entry.address.data(), entry.address.size() - 1);
    entry.port = request.port;
    entry.machine = request.machine;
  }
  for (const int rank : awaited_) {
    const Status in = let_in(peer(rank), requests_[static_cast<std::size_t>(rank)],
                             std::as_bytes(std::span(table)));
    if (!in) return in;
  }
  count_machines(table);
  return Done{};
}

/// Answers the challenge with the JoinRequest. False, with the reason: nobody answers, try again.
/// Error: another service is there.
Result<bool> Joiner::introduce(const Socket& socket, int rank, std::string& why) {
  Challenge challenge;
  if (!read_all(socket, &challenge, sizeof challenge, wait_limit_)) {
    why = "it does not answer";
    return false;
  }
  if (challenge.magic != kMagic) return no_echelon_error(rank);
  if (!listener_) {  // on the interface by which this process reaches rank 0
    Result<Socket> listener = listen_beside(socket, rendezvous_.address);
    if (!listener) return listener.error();
    listener_ = *std::move(listener);
    own_.port = port_of(listener_);
  }
  own_.nonce = new_nonce();
  nonces_[rank] = own_.nonce;
  own_.signature = sign(rendezvous_.token, challenge.nonce,
                        {reinterpret_cast<const std::byte*>(&own_), kSigned});
  return write_all(socket, &own_, sizeof own_, wait_limit_);
}

/// Retries until the peer listens and has received the JoinRequest.
Result<Socket> Joiner::reach(const std::string& address, int port, int rank) {
  const std::string target = fmt::format("{}:{}", address, port);
  std::string why = "no answer";
  while (!wait_limit_.over()) {
    Socket socket = connect_to(address, port, wait_limit_, why);
    if (socket) {
      const Result<bool> known = introduce(socket, rank, why);
      if (!known) return known.error();
      if (*known) return socket;
    }
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
  const std::size_t most = reply.accepted != 0
                               ? static_cast<std::size_t>(rendezvous_.size) * sizeof(PeerAddress)
                               : kLongestReason;
  if (reply.magic != kMagic || reply.bytes > most) {
    return no_echelon_error(rank);
  }
  std::string text(reply.bytes, '\0');
  if (!read_all(socket, text.data(), text.size(), wait_limit)) {
    return environment_error(target, fmt::format("rank {} left before the run began", rank));
  }
  if (reply.accepted != 0) {
    const Signature expected =
        sign(rendezvous_.token, nonces_.at(rank), std::as_bytes(std::span(text)));
    if (same(expected, reply.signature)) return text;
    return environment_error(target,
                             fmt::format("the process there does not know {}", kTokenVariable),
                             "the same value for every process of the run");
  }
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
  std::vector<int> earlier;  // those that this one connects to
  for (const int rank : rendezvous_.data_peers) {
    if (rank != 0) (rank < rendezvous_.rank ? earlier : awaited_).push_back(rank);
  }
  for (const int rank : earlier) {
    const PeerAddress& entry = table[static_cast<std::size_t>(rank)];
    const std::string address(entry.address.data());
    Result<Socket> socket =
        reach(address.empty() ? rendezvous_.address : address, static_cast<int>(entry.port), rank);
    if (!socket) return socket.error();
    peer(rank) = *std::move(socket);
  }
  if (const Status all = accepted(); !all) return all;
  for (const int rank : awaited_) {
    const Status in = let_in(peer(rank), requests_[static_cast<std::size_t>(rank)], {});
    if (!in) return in;
  }
  for (const int rank : earlier) {
    if (const auto let_in = read_reply(peer(rank), rank, wait_limit_); !let_in)
      return let_in.error();
  }
  count_machines(table);
  return Done{};
}

}  // namespace

Result<Connected> join_run(const Rendezvous& rendezvous) { return Joiner(rendezvous).join_run(); }

}  // namespace echelon::tcp
