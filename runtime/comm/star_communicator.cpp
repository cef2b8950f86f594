// Every member sends the first one a header that announces its call, with the data if they are
// small. The first member compares the calls and answers all with a header, with the result if it
// is small. Large data follow the answer.
#include "runtime/comm/star_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <vector>

#include "core/base/expects.hpp"
#include "runtime/comm/call_communicator.hpp"
#include "runtime/comm/call_header.hpp"
#include "runtime/comm/ordered_reduction.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {
namespace {

/// Memory of the first member for a slice of everybody's data.
constexpr std::int64_t kStarScratchBytes = 1 << 24;
/// Longest and shortest slice of one member.
constexpr std::int64_t kLongestStarSlice = 1 << 18;
constexpr std::int64_t kShortestStarSlice = 1 << 12;

void copy_bytes(const void* from, void* to, std::int64_t bytes) {
  if (bytes > 0 && from != to) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

class StarCommunicator final : public CallCommunicator {
 public:
  StarCommunicator(Group group, int member, std::unique_ptr<Messages> messages)
      : group_(std::move(group)),
        rank_(member),
        where_(describe(group_)),
        messages_(std::move(messages)),
        headers_(group_.ranks.size()) {}
  ~StarCommunicator() override {
    if (messages_->idle()) return;
    // Transfers in flight still use them.
    new (std::nothrow) std::vector<CallHeader>(std::move(headers_));
    new (std::nothrow) std::vector<std::byte>(std::move(scratch_));
    new (std::nothrow) std::vector<std::int64_t>(std::move(counts_));
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_.size(); }
  [[nodiscard]] Seconds transfer_began() const override { return transfer_began_; }

 private:
  void carry_out(const Call& call, const void* in, void* out, const PartCounts& parts) override;
  void message(const Call& call, const void* in, void* out);
  void collect(const Call& call);
  void answer(const Call& call, const void* data, std::int64_t bytes);
  void lead_small(const Call& call, void* out);
  void follow_small(const Call& call, void* out);
  void reduce(const Call& call, const std::byte* from, std::byte* to, std::int64_t count,
              int receiver);
  void large(const Call& call, const void* in, void* out);
  void collect_counts(const Call& call, const PartCounts& parts);
  void all_to_all(const Call& call, const std::byte* in, std::byte* out, const PartCounts& parts);
  void spread(const Call& call, void* data, std::int64_t bytes, int except);
  void wait_all(const Call& call);
  void check(const Call& call, int other) {
    const auto wrong = disagreement(group_, rank_, call, other, header(other).call);
    if (wrong) throw RunFailure(*wrong);
  }
  [[nodiscard]] CallHeader& header(int member) {
    return headers_[static_cast<std::size_t>(member)];
  }
  [[nodiscard]] bool leads() const { return rank_ == 0; }
  /// Bytes that a member that has data sends to the first one, which may answer with more.
  [[nodiscard]] std::int64_t upward(const Call& call) const {
    if (call.operation == Operation::barrier) return 0;
    return call.bytes() * (call.operation == Operation::reduce_scatter ? size() : 1);
  }

  Group group_;
  int rank_;
  Seconds transfer_began_;
  std::string where_;
  std::unique_ptr<Messages> messages_;
  std::vector<CallHeader> headers_;  ///< by member; of others than the first: 0 and own
  std::vector<std::byte> scratch_;
  std::vector<std::int64_t> counts_;  ///< of an all_to_all: `to` and `from` of each member
};

void StarCommunicator::wait_all(const Call& call) {
  messages_->wait([&] {
    WaitDescription wait(describe(group_, call) + " in the " + where_);
    for (int member = 0; member < size(); ++member) {
      const bool awaited = !call.is_collective() ? member == call.other
                           : leads()             ? member != 0
                                                 : member == 0;
      if (awaited) wait.missing.push_back(group_.rank(member));
    }
    return wait;
  });
}

void StarCommunicator::carry_out(const Call& call, const void* in, void* out,
                                 const PartCounts& parts) {
  if (!call.is_collective()) return message(call, in, out);
  const bool has_data = call.operation != Operation::broadcast || call.other == rank_;
  const bool exchanges = call.operation == Operation::all_to_all;
  const bool small = !exchanges && CallHeader::holds(upward(call));
  header(rank_).announce(call, has_data ? in : nullptr, small ? upward(call) : 0);
  if (leads()) {
    collect(call);
    if (small) return lead_small(call, out);
    answer(call, nullptr, 0);
  } else {
    messages_->receive(&header(0), sizeof(CallHeader), 0);
    messages_->send(&header(rank_), sizeof(CallHeader), 0);
    wait_all(call);
    transfer_began_ = steady_now();
    check(call, 0);
    if (small) return follow_small(call, out);
  }
  if (!exchanges) return large(call, in, out);
  collect_counts(call, parts);
  all_to_all(call, static_cast<const std::byte*>(in), static_cast<std::byte*>(out), parts);
}

/// The first member compares the parts of all.
void StarCommunicator::collect_counts(const Call& call, const PartCounts& parts) {
  const auto row = static_cast<std::ptrdiff_t>(2 * parts.to.size());
  const std::int64_t bytes = row * static_cast<std::int64_t>(sizeof(std::int64_t));
  counts_.resize(static_cast<std::size_t>(row * size()));
  std::int64_t* const own = counts_.data() + rank_ * row;
  std::ranges::copy(parts.from, std::ranges::copy(parts.to, own).out);
  if (!leads()) messages_->send(own, bytes, 0);
  for (int member = 1; member < size() && leads(); ++member)
    messages_->receive(counts_.data() + member * row, bytes, member);
  wait_all(call);
  const auto of = [&](int member) {
    const std::span all = std::span(counts_).subspan(static_cast<std::size_t>(member * row));
    return PartCounts{
        all.first(parts.to.size()), all.subspan(parts.to.size(), parts.to.size()), {}, {}};
  };
  for (int one = 0; one < size() && leads(); ++one) {
    for (int two = one; two < size(); ++two) {
      const auto wrong = disagreement(group_, call.element, one, of(one), two, of(two));
      if (wrong) throw RunFailure(*wrong);
    }
  }
}

/// The first member forwards the parts of others, one at a time.
void StarCommunicator::all_to_all(const Call& call, const std::byte* in, std::byte* out,
                                  const PartCounts& parts) {
  const std::int64_t width = bytes_of(call.element);
  const auto each = static_cast<std::size_t>(call.other);
  const std::size_t all = parts.to.size();
  const auto own = static_cast<std::size_t>(rank_) * each;
  const auto sent = [&](std::size_t part) { return in + parts.to_first[part] * width; };
  const auto got = [&](std::size_t part) { return out + parts.from_first[part] * width; };
  for (std::size_t part = own; part < own + each; ++part)
    copy_bytes(sent(part), got(part), parts.to[part] * width);
  if (!leads()) {
    for (std::size_t part = 0; part < all; ++part) {
      if (part / each == static_cast<std::size_t>(rank_)) continue;
      if (parts.from[part] > 0) messages_->receive(got(part), parts.from[part] * width, 0);
      if (parts.to[part] > 0) messages_->send(sent(part), parts.to[part] * width, 0);
    }
    return wait_all(call);
  }
  for (int from = 0; from < size(); ++from) {
    const auto first = static_cast<std::size_t>(from) * each;
    for (std::size_t part = 0; part < all; ++part) {
      const auto to = static_cast<int>(part / each);
      const std::int64_t bytes = counts_[2 * static_cast<std::size_t>(from) * all + part] * width;
      if (from == to || bytes == 0) continue;
      if (from != 0 && to != 0) scratch_.resize(static_cast<std::size_t>(bytes));
      std::byte* const here = to == 0 ? got(first + part) : scratch_.data();
      if (from != 0) messages_->receive(here, bytes, from);
      if (from != 0) wait_all(call);
      if (to != 0) messages_->send(from == 0 ? sent(part) : here, bytes, to);
      wait_all(call);
    }
  }
}

/// Both sides announce their calls, the sender with data that fit.
void StarCommunicator::message(const Call& call, const void* in, void* out) {
  EXPECTS(leads() || call.other == 0, "the first member is on one side");
  header(rank_).announce(call, in, call.bytes());
  messages_->receive(&header(call.other), sizeof(CallHeader), call.other);
  messages_->send(&header(rank_), sizeof(CallHeader), call.other);
  wait_all(call);
  transfer_began_ = steady_now();
  check(call, call.other);
  if (CallHeader::holds(call.bytes())) {
    if (out != nullptr) copy_bytes(header(call.other).data.data(), out, call.bytes());
    return;
  }
  if (out != nullptr) messages_->receive(out, call.bytes(), call.other);
  if (in != nullptr) messages_->send(in, call.bytes(), call.other);
  wait_all(call);
}

/// Of the first member: everybody's header.
void StarCommunicator::collect(const Call& call) {
  for (int member = 1; member < size(); ++member)
    messages_->receive(&header(member), sizeof(CallHeader), member);
  wait_all(call);
  transfer_began_ = steady_now();
  for (int member = 1; member < size(); ++member) check(call, member);
}

/// Of the first member: the header that all others wait for.
void StarCommunicator::answer(const Call& call, const void* data, std::int64_t bytes) {
  header(0).announce(call, data, bytes);
  for (int member = 1; member < size(); ++member)
    messages_->send(&header(0), sizeof(CallHeader), member);
  wait_all(call);
}

/// The data of all are in their headers.
void StarCommunicator::lead_small(const Call& call, void* out) {
  const std::int64_t bytes = call.bytes();
  std::vector<const void*> in;
  for (const CallHeader& each : headers_) in.push_back(each.data.data());
  switch (call.operation) {
    case Operation::all_reduce:
      reduce_in_order(in, 0, std::array{out}, 0, call.count, call.element, call.how);
      return answer(call, out, bytes);
    case Operation::reduce_scatter: {
      alignas(16) std::array<std::byte, sizeof(CallHeader::data)> whole;
      reduce_in_order(in, 0, std::array<void*, 1>{whole.data()}, 0, call.count * size(),
                      call.element, call.how);
      copy_bytes(whole.data(), out, bytes);
      return answer(call, whole.data(), bytes * size());
    }
    case Operation::all_gather: {
      auto* const to = static_cast<std::byte*>(out);
      for (int member = 0; member < size(); ++member)
        copy_bytes(in[static_cast<std::size_t>(member)], to + member * bytes, bytes);
      answer(call, out, bytes * size());
      if (!CallHeader::holds(bytes * size())) spread(call, out, bytes * size(), 0);
      return;
    }
    case Operation::broadcast:
      if (call.other != 0) copy_bytes(header(call.other).data.data(), out, bytes);
      return answer(call, out, bytes);
    default: return answer(call, nullptr, 0);
  }
}

void StarCommunicator::follow_small(const Call& call, void* out) {
  const std::int64_t bytes = call.bytes();
  const std::byte* const result = header(0).data.data();
  switch (call.operation) {
    case Operation::all_reduce: return copy_bytes(result, out, bytes);
    case Operation::broadcast:
      if (call.other != rank_) copy_bytes(result, out, bytes);
      return;
    case Operation::reduce_scatter: return copy_bytes(result + rank_ * bytes, out, bytes);
    case Operation::all_gather:
      if (CallHeader::holds(bytes * size())) return copy_bytes(result, out, bytes * size());
      return spread(call, out, bytes * size(), 0);
    default: return;
  }
}

/// The first member sends the data to all others but one.
void StarCommunicator::spread(const Call& call, void* data, std::int64_t bytes, int except) {
  if (!leads()) {
    if (rank_ != except) messages_->receive(data, bytes, 0);
  } else {
    for (int member = 1; member < size(); ++member) {
      if (member != except) messages_->send(data, bytes, member);
    }
  }
  wait_all(call);
}

/// Adds everybody's elements at `from`, slice by slice; the sums go to `to` of one member, or of
/// all (`receiver` -1). What a member sends is read before the sum of it is written.
void StarCommunicator::reduce(const Call& call, const std::byte* from, std::byte* to,
                              std::int64_t count, int receiver) {
  const std::int64_t width = bytes_of(call.element);
  const std::int64_t slice =
      std::clamp(kStarScratchBytes / size(), kShortestStarSlice, kLongestStarSlice) / width;
  const bool receives = receiver < 0 || receiver == rank_;
  for (std::int64_t first = 0; first < count; first += slice) {
    const std::int64_t bytes = std::min(slice, count - first) * width;
    const std::byte* const own = from + first * width;
    if (!leads()) {
      if (receives) messages_->receive(to + first * width, bytes, 0);
      messages_->send(own, bytes, 0);
      wait_all(call);
      continue;
    }
    scratch_.resize(static_cast<std::size_t>(bytes * size()));
    std::vector<const void*> in{own};
    for (int member = 1; member < size(); ++member) {
      in.push_back(scratch_.data() + member * bytes);
      messages_->receive(scratch_.data() + member * bytes, bytes, member);
    }
    wait_all(call);
    std::byte* const sum = receives ? to + first * width : scratch_.data();
    reduce_in_order(in, 0, std::array<void*, 1>{sum}, 0, bytes / width, call.element, call.how);
    for (int member = 1; member < size(); ++member) {
      if (receiver < 0 || receiver == member) messages_->send(sum, bytes, member);
    }
    wait_all(call);
  }
}

/// Data that do not fit into headers.
void StarCommunicator::large(const Call& call, const void* in, void* out) {
  const auto* const from = static_cast<const std::byte*>(in);
  auto* const to = static_cast<std::byte*>(out);
  const std::int64_t bytes = call.bytes();
  switch (call.operation) {
    case Operation::all_reduce: return reduce(call, from, to, call.count, -1);
    case Operation::reduce_scatter:
      for (int member = 0; member < size(); ++member)
        reduce(call, from + member * bytes, to, call.count, member);
      return;
    case Operation::all_gather:
      if (leads()) {
        copy_bytes(from, to, bytes);
        for (int member = 1; member < size(); ++member)
          messages_->receive(to + member * bytes, bytes, member);
        wait_all(call);
      } else {
        messages_->send(from, bytes, 0);
      }
      return spread(call, to, bytes * size(), 0);
    case Operation::broadcast:
      if (call.other != 0 && leads()) messages_->receive(to, bytes, call.other);
      if (call.other != 0 && rank_ == call.other) messages_->send(from, bytes, 0);
      wait_all(call);
      return spread(call, to, bytes, call.other);
    default: return;
  }
}

}  // namespace

std::unique_ptr<Communicator> star_communicator(const Group& group, int member,
                                                std::unique_ptr<Messages> messages) {
  return std::make_unique<StarCommunicator>(group, member, std::move(messages));
}

}  // namespace echelon
