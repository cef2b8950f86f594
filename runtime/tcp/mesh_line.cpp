#include "runtime/tcp/mesh_line.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/expects.hpp"

namespace echelon::tcp {
namespace {

/// Read under the lock of a line at a time.
constexpr std::uint64_t kReadBytes = 1 << 18;

int member_of_rank(const Group& group, int rank) {
  const auto at = std::find(group.ranks.begin(), group.ranks.end(), rank);
  return at == group.ranks.end() ? -1 : static_cast<int>(at - group.ranks.begin());
}

}  // namespace

MeshLine::MeshLine(Mesh& mesh, std::uint32_t number, const Group& group)
    : mesh_(mesh),
      number_(number),
      group_(group),
      own_(member_of_rank(group, mesh.rank_)),
      gate_(mesh.crew_),
      lanes_(group.ranks.size()) {
  EXPECTS(own_ >= 0, "a process has the lines of its own rank");
}

int MeshLine::member_of(int rank) const { return member_of_rank(group_, rank); }

void MeshLine::send(const void* data, std::int64_t bytes, int to) {
  if (bytes == 0) return;
  Mesh::Parcel parcel;
  parcel.line = this;
  parcel.member = to;
  parcel.head = {number_, lane(to).next_out++, static_cast<std::uint64_t>(bytes)};
  parcel.data = static_cast<const std::byte*>(data);
  mesh_.send(mesh_.peer(group_.rank(to)), std::move(parcel));
}

void MeshLine::receive(void* data, std::int64_t bytes, int from) {
  if (bytes == 0) return;
  gate_.quietly([&] {
    Lane& each = lane(from);
    each.posted.push_back({static_cast<std::byte*>(data), static_cast<std::uint64_t>(bytes)});
    match(each);
  });
}

void MeshLine::gather(std::byte* blocks, std::int64_t bytes) {
  for (int step = 1; step < group_.size(); ++step) {
    const int from = (own_ + group_.size() - step) % group_.size();
    receive(blocks + from * bytes, bytes, from);
    send(blocks + own_ * bytes, bytes, (own_ + step) % group_.size());
  }
}

/// Under the lock.
void MeshLine::match(Lane& each) {
  while (!each.posted.empty() && !each.early.empty() && each.early.front().whole) {
    const Posted& to = each.posted.front();
    const Early& from = each.early.front();
    EXPECTS(to.bytes == from.data.size(), "both sides begin the same messages");
    std::memcpy(to.data, from.data.data(), from.data.size());
    each.posted.pop_front();
    each.early.pop_front();
  }
}

/// Under the lock.
int MeshLine::under_way() const {
  int count = 0;
  for (const Lane& each : lanes_) count += static_cast<int>(each.posted.size()) + each.parcels;
  return count;
}

/// Under the lock: a rank that is waited for and has left, or -1. Its last word came after all its
/// messages.
int MeshLine::gone() const {
  for (std::size_t member = 0; member < lanes_.size(); ++member) {
    const bool awaited = !lanes_[member].posted.empty() || lanes_[member].parcels > 0;
    const int rank = group_.ranks[member];
    if (awaited && mesh_.peer(rank).left) return rank;
  }
  return -1;
}

/// Under the lock.
std::string MeshLine::missing() const {
  std::string text;
  for (std::size_t member = 0; member < lanes_.size(); ++member) {
    if (!lanes_[member].posted.empty()) text += " " + std::to_string(group_.ranks[member]);
  }
  return text.empty() ? "" : " waits for rank" + text;
}

void MeshLine::wait(const std::function<std::string()>& waiting) {
  int lost = -1;
  try {
    gate_.await(
        [&] {
          if (under_way() == 0) return true;
          lost = gone();
          return lost >= 0;
        },
        [&] { return waiting() + missing(); });
    if (lost >= 0) {
      throw RunFailure(RunFailure::Kind::peer_lost,
                       "rank " + std::to_string(lost) + " has left the run: " + waiting());
    }
  } catch (...) {
    gate_.quietly([&] {
      abandoned_ = true;
      for (Lane& each : lanes_) each.posted.clear();
    });
    mesh_.abandon(*this);
    throw;
  }
}

bool MeshLine::idle() const {
  return gate_.quietly([&] { return abandoned_ || under_way() == 0; });
}

std::string MeshLine::begin(int member, const Head& head) {
  return gate_.quietly([&]() -> std::string {
    Lane& each = lane(member);
    if (head.number != each.next_in++) return "a message is missing";
    each.direct = !abandoned_ && each.early.empty() && !each.posted.empty();
    if (!each.direct) {
      each.early.emplace_back().data.resize(head.bytes);
    } else if (each.posted.front().bytes != head.bytes) {
      return "a message of another length";
    }
    return "";
  });
}

std::int64_t MeshLine::read(int member, std::uint64_t left, int descriptor) {
  std::array<std::byte, 1 << 14> nowhere;
  bool over = false;
  const std::int64_t got = gate_.quietly([&]() -> std::int64_t {
    Lane& each = lane(member);
    std::byte* to = nowhere.data();
    std::uint64_t most = std::min<std::uint64_t>(left, nowhere.size());
    if (!each.direct) {
      Early& early = each.early.back();
      to = early.data.data() + (early.data.size() - left);
      most = std::min(left, kReadBytes);
    } else if (!each.posted.empty()) {
      to = each.posted.front().data + (each.posted.front().bytes - left);
      most = std::min(left, kReadBytes);
    }
    const std::int64_t count = receive_some(descriptor, to, most);
    over = count > 0 && static_cast<std::uint64_t>(count) == left;
    if (!over) return count;
    if (!each.direct) {
      each.early.back().whole = true;
      if (abandoned_) each.early.pop_back();
      match(each);
    } else if (!each.posted.empty()) {
      each.posted.pop_front();
    }
    return count;
  });
  if (over) gate_.wake();
  return got;
}

void MeshLine::under_way(int member) {
  gate_.quietly([&] { ++lane(member).parcels; });
}

void MeshLine::sent(int member) {
  gate_.change([&] { --lane(member).parcels; });
}

}  // namespace echelon::tcp
