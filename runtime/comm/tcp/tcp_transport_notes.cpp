// How a process learns of the end of others, of their state, and for whom rank 0 waits.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/comm/tcp/tcp_channel.hpp"
#include "runtime/comm/tcp/tcp_transport.hpp"
#include "runtime/comm/tcp/transport_notes.hpp"

namespace echelon::tcp {
namespace {

constexpr std::byte kFine{0};

std::vector<std::byte> goodbye_of(RunFailure::Kind kind, const std::string& why) {
  std::vector<std::byte> goodbye{static_cast<std::byte>(static_cast<int>(kind) + 1)};
  const std::size_t length = std::min<std::size_t>(why.size(), kLongestGoodbye - 1);
  for (const char c : why.substr(0, length)) goodbye.push_back(static_cast<std::byte>(c));
  return goodbye;
}

}  // namespace

/// Members that have sent their part wait for rank 0 and cannot know for whom it waits. It says so
/// when it has waited for the same ranks for a round, before it sends anything else to the channel.
void TcpTransport::tell_awaited() {
  for (Awaited& each : awaited_) {
    std::vector<std::int32_t> now = each.channel->awaited();
    now.resize(std::min(now.size(), kMostAwaited));
    const bool lasts = now == std::exchange(each.before, now);
    if (!lasts || now == each.told) continue;
    each.told = now;
    std::vector<std::int32_t> list{static_cast<std::int32_t>(now.size())};
    list.insert(list.end(), now.begin(), now.end());
    const auto bytes = std::as_bytes(std::span(list));
    for (const int rank : each.channel->group().ranks) {
      Peer& to = peer(rank);
      const bool late = std::find(now.begin(), now.end(), rank) != now.end();
      if (rank == rank_ || late || to.left) continue;
      Parcel parcel;
      parcel.header = {kAwaited, each.channel->number(), bytes.size()};
      parcel.own.assign(bytes.begin(), bytes.end());
      send(to, std::move(parcel));
    }
  }
}

void TcpTransport::read_awaited(const Peer& from) {
  std::vector<std::int32_t> ranks(from.note.size() / sizeof(std::int32_t));
  std::memcpy(ranks.data(), from.note.data(), from.note.size());
  ranks.erase(ranks.begin());
  TcpChannel* const channel =
      from.header.number < channels_.size() ? channels_[from.header.number] : nullptr;
  if (channel != nullptr && channel->is_star()) channel->first_awaits(std::move(ranks));
}

void TcpTransport::read_note(Peer& from) {
  if (from.header.channel == kGoodbyes) return read_goodbye(from);
  from.header.channel == kStatuses ? read_status(from) : read_awaited(from);
}

void TcpTransport::read_status(const Peer& from) {
  StatusMessage status;
  std::memcpy(&status, from.note.data(), sizeof status);
  const std::lock_guard lock(statuses_mutex_);
  statuses_.emplace_back(from.rank, status);
}

void TcpTransport::send(int to, const StatusMessage& message) {
  Peer& target = peer(to);
  if (!target.socket || target.left || finishing_) return;
  Parcel parcel;
  parcel.header = {kStatuses, 0, sizeof message};
  const auto* const bytes = reinterpret_cast<const std::byte*>(&message);
  parcel.own.assign(bytes, bytes + sizeof message);
  send(target, std::move(parcel));
}

std::optional<StatusMessage> TcpTransport::receive(int& from) {
  const std::lock_guard lock(statuses_mutex_);
  if (statuses_.empty()) return std::nullopt;
  const auto [rank, status] = statuses_.front();
  statuses_.pop_front();
  from = rank;
  return status;
}

/// Rank 0 knows everybody, the others only some: how a process has failed reaches all at once.
void TcpTransport::pass_on(int ended, const std::vector<std::byte>& goodbye) {
  if (rank_ != 0) return;
  for (const auto& each : peers_) {
    if (!each->socket || each->rank == ended || each->left) continue;
    Parcel parcel;
    parcel.header = {kGoodbyes, static_cast<std::uint32_t>(ended), goodbye.size()};
    parcel.own = goodbye;
    send(*each, std::move(parcel));
  }
}

void TcpTransport::read_goodbye(Peer& from) {
  const bool own = from.header.number == static_cast<std::uint32_t>(from.rank);
  const std::byte how = from.note.front();
  if (how == kFine) {
    if (own) from.left = true;
    return wake_channels();
  }
  if (own) pass_on(from.rank, from.note);
  const std::string why(reinterpret_cast<const char*>(from.note.data()) + 1, from.note.size() - 1);
  {
    const std::lock_guard lock(reported_mutex_);
    reported_ = why;
  }
  run_threads_.stop(static_cast<RunFailure::Kind>(static_cast<int>(how) - 1), why);
  if (own) from.left = true;  // last: who waits for it would stop the run without its reason
}

/// No more data come from this peer.
void TcpTransport::closed(Peer& from) {
  from.open = false;
  {
    const std::lock_guard lock(from.mutex);
    from.writes = false;
    from.write_failed = true;
  }
  if (!from.left && !finishing_) {
    const std::string why = "rank " + std::to_string(from.rank) +
                            " is gone: the connection to it (" + from.address +
                            ") ended in the middle of the run";
    pass_on(from.rank, goodbye_of(RunFailure::Kind::peer_lost, why));
    run_threads_.stop(RunFailure::Kind::peer_lost, why);
  }
  from.left = true;
  wake_channels();
}

void TcpTransport::finish(Seconds limit) {
  std::vector<std::byte> goodbye{kFine};
  if (run_threads_.stopping()) {
    constexpr Seconds kNotLong{2};
    limit = std::min(limit, kNotLong);
    const RunFailure failure = run_threads_.failure();
    std::string why = failure.what();
    const bool own = failure.kind() != RunFailure::Kind::peer_lost;
    const std::lock_guard lock(reported_mutex_);
    const std::string mine = "rank " + std::to_string(rank_) + ": ";
    if (own && why != reported_ && !why.starts_with(mine)) why = mine + why;
    goodbye = goodbye_of(failure.kind(), why);
  }
  for (const auto& each : peers_) {
    if (!each->socket) continue;
    Parcel parcel;
    parcel.header = {kGoodbyes, static_cast<std::uint32_t>(rank_), goodbye.size()};
    parcel.own = goodbye;
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
