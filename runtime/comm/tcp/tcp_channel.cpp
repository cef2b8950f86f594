#include "runtime/comm/tcp/tcp_channel.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/content_hash.hpp"
#include "core/base/expects.hpp"

namespace echelon::tcp {
namespace {

/// Bytes read at a time under the lock of a channel.
constexpr std::uint64_t kReadBytes = 1 << 18;

std::optional<int> member_of_rank(const Group& group, int rank) {
  const auto at = std::find(group.ranks.begin(), group.ranks.end(), rank);
  if (at == group.ranks.end()) return std::nullopt;
  return static_cast<int>(at - group.ranks.begin());
}

int own_member(const Group& group, int rank) {
  const std::optional<int> own = member_of_rank(group, rank);
  EXPECTS(own, "a process has the channels of its own rank");
  return *own;
}

}  // namespace

TcpChannel::TcpChannel(TcpTransport& transport, std::uint32_t number, const Group& group,
                       Lines lines)
    : transport_(transport),
      number_(number),
      group_(group),
      lines_(lines),
      own_(own_member(group, transport.rank_)),
      monitor_(transport.run_threads_),
      peer_queues_(group.ranks.size()) {}

std::optional<int> TcpChannel::member_of(int rank) const { return member_of_rank(group_, rank); }

void TcpChannel::send(const void* data, std::int64_t bytes, int to) {
  if (bytes == 0) return;
  TcpTransport::Parcel parcel;
  parcel.channel = this;
  parcel.member = to;
  parcel.header = {number_, peer_queue(to).next_out++, static_cast<std::uint64_t>(bytes)};
  parcel.data = static_cast<const std::byte*>(data);
  transport_.send(transport_.peer(group_.rank(to)), std::move(parcel));
}

void TcpChannel::receive(void* data, std::int64_t bytes, int from) {
  if (bytes == 0) return;
  const bool matches = monitor_.with_lock([&] {
    PeerQueue& each = peer_queue(from);
    each.posted.push_back({static_cast<std::byte*>(data), static_cast<std::uint64_t>(bytes)});
    return match(each);
  });
  if (!matches) refuse_length(from);
}

void TcpChannel::refuse_length(int member) {
  transport_.run_threads_.stop(
      RunFailure::Kind::defect,
      "rank " + std::to_string(group_.rank(member)) + ": a message of unexpected length");
}

void TcpChannel::gather(std::byte* blocks, std::int64_t bytes) {
  for (int step = 1; step < group_.size(); ++step) {
    const int from = (own_ + group_.size() - step) % group_.size();
    receive(blocks + from * bytes, bytes, from);
    send(blocks + own_ * bytes, bytes, (own_ + step) % group_.size());
  }
}

/// Under the lock.
bool TcpChannel::match(PeerQueue& each) {
  while (!each.posted.empty() && !each.early.empty() && each.early.front().whole) {
    const Posted& to = each.posted.front();
    const Early& from = each.early.front();
    if (to.bytes != from.data.size()) return false;
    std::memcpy(to.data, from.data.data(), from.data.size());
    each.posted.pop_front();
    each.early.pop_front();
  }
  return true;
}

/// Under the lock.
int TcpChannel::under_way() const {
  int count = 0;
  for (const PeerQueue& each : peer_queues_)
    count += static_cast<int>(each.posted.size()) + each.parcels;
  return count;
}

/// Under the lock: an awaited rank that has left, if there is one. Its goodbye message followed all
/// its other messages.
std::optional<int> TcpChannel::lost_rank() const {
  for (std::size_t member = 0; member < peer_queues_.size(); ++member) {
    const bool awaited = !peer_queues_[member].posted.empty() || peer_queues_[member].parcels > 0;
    const int rank = group_.ranks[member];
    if (awaited && transport_.peer(rank).left) return rank;
  }
  return std::nullopt;
}

/// Under the lock.
std::vector<std::int32_t> TcpChannel::posted_ranks() const {
  std::vector<std::int32_t> ranks;
  for (std::size_t member = 0; member < peer_queues_.size(); ++member) {
    if (!peer_queues_[member].posted.empty()) ranks.push_back(group_.ranks[member]);
  }
  return ranks;
}

std::vector<std::int32_t> TcpChannel::awaited() const {
  return monitor_.with_lock([&] { return posted_ranks(); });
}

void TcpChannel::first_awaits(std::vector<std::int32_t> ranks) {
  monitor_.with_lock([&] { first_awaits_ = std::move(ranks); });
}

/// Under the lock: with the ranks whose messages have not arrived. In a star these are the ones
/// that the first member lacks, if it has said so, not the first member itself.
WaitDescription TcpChannel::exactly(WaitDescription wait) const {
  std::vector<int> missing = posted_ranks();
  if (missing.empty()) return wait;
  if (own_ != 0 && !first_awaits_.empty()) missing = first_awaits_;
  wait.text += " waits for rank";
  for (const int rank : missing) wait.text += " " + std::to_string(rank);
  wait.missing = std::move(missing);
  return wait;
}

void TcpChannel::wait(const DescribeWait& waiting) {
  std::optional<int> lost;
  try {
    monitor_.await(
        [&] {
          if (under_way() == 0) return true;
          lost = lost_rank();
          return lost.has_value();
        },
        [&] { return exactly(waiting()); });
    if (lost) {
      throw RunFailure(RunFailure::Kind::peer_lost,
                       "rank " + std::to_string(*lost) + " has left the run: " + waiting().text);
    }
  } catch (...) {
    monitor_.with_lock([&] {
      abandoned_ = true;
      for (PeerQueue& each : peer_queues_) each.posted.clear();
    });
    transport_.abandon(*this);
    throw;
  }
}

bool TcpChannel::idle() const {
  return monitor_.with_lock([&] { return abandoned_ || under_way() == 0; });
}

std::string TcpChannel::begin(int member, const MessageHeader& header) {
  return monitor_.with_lock([&]() -> std::string {
    PeerQueue& each = peer_queue(member);
    if (header.number != each.next_in++) return "a message is missing";
    if (member == 0) first_awaits_.clear();
    each.checksum = header.checksum;
    each.direct = !abandoned_ && each.early.empty() && !each.posted.empty();
    if (!each.direct) {
      each.early.emplace_back().bytes = header.bytes;
    } else if (each.posted.front().bytes != header.bytes) {
      return "a message of unexpected length";
    }
    return "";
  });
}

/// Under the lock: of the message whose last byte has arrived.
bool TcpChannel::matches_checksum(const PeerQueue& each) {
  if (!each.direct) return checksum(each.early.back().data) == each.checksum;
  if (each.posted.empty()) return true;  // abandoned
  return checksum({each.posted.front().data, each.posted.front().bytes}) == each.checksum;
}

std::int64_t TcpChannel::read(int member, std::uint64_t left, int descriptor) {
  std::array<std::byte, 1 << 14> nowhere;
  bool over = false;
  bool intact = true;
  bool matches = true;
  const std::int64_t got = monitor_.with_lock([&]() -> std::int64_t {
    PeerQueue& each = peer_queue(member);
    std::byte* to = nowhere.data();
    std::uint64_t limit = std::min<std::uint64_t>(left, nowhere.size());
    if (!each.direct) {
      Early& early = each.early.back();
      limit = std::min(left, kReadBytes);
      early.data.resize(early.bytes - left + limit);
      to = early.data.data() + (early.bytes - left);
    } else if (!each.posted.empty()) {
      to = each.posted.front().data + (each.posted.front().bytes - left);
      limit = std::min(left, kReadBytes);
    }
    const std::int64_t count = receive_some(descriptor, to, limit);
    over = count > 0 && static_cast<std::uint64_t>(count) == left;
    if (!each.direct && count < static_cast<std::int64_t>(limit)) {
      each.early.back().data.resize(each.early.back().bytes - left +
                                    static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
    }
    if (!over) return count;
    intact = matches_checksum(each);
    if (!each.direct) {
      each.early.back().whole = true;
      if (abandoned_) each.early.pop_back();
      matches = match(each);
    } else if (!each.posted.empty()) {
      each.posted.pop_front();
    }
    return count;
  });
  if (!matches) refuse_length(member);
  if (!intact) transport_.changed(transport_.peer(group_.rank(member)));
  if (over) monitor_.wake();
  return got;
}

void TcpChannel::under_way(int member) {
  monitor_.with_lock([&] { ++peer_queue(member).parcels; });
}

void TcpChannel::sent(int member) {
  monitor_.change([&] { --peer_queue(member).parcels; });
}

}  // namespace echelon::tcp
