// Every call begins with headers by which members announce their calls, with the data themselves if
// they are small: in collectives to all members, in messages to the other side, which thereby
// learns that both have arrived. Large data travel between members in slices and are added in
// member order by the code that threads use, so the bits are the same.
#include "runtime/comm/message_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <vector>

#include "core/base/expects.hpp"
#include "runtime/comm/call_header.hpp"
#include "runtime/comm/ordered_reduction.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {
namespace {

/// Bytes of one member's part of a slice: scratch memory is this times the number of members.
constexpr std::int64_t kSliceBytes = 1 << 18;

class MessageCommunicator final : public Communicator {
 public:
  MessageCommunicator(Group group, int member, std::unique_ptr<Messages> messages)
      : group_(std::move(group)),
        rank_(member),
        where_(describe(group_)),
        messages_(std::move(messages)),
        headers_(group_.ranks.size()) {}
  ~MessageCommunicator() override {
    if (messages_->idle()) return;
    // Transfers in flight still use them.
    new (std::nothrow) std::vector<CallHeader>(std::move(headers_));
    new (std::nothrow) std::vector<std::byte>(std::move(scratch_));
    new (std::nothrow) std::vector<std::int64_t>(std::move(counts_));
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_.size(); }

  void all_reduce(void* data, std::int64_t count, Element element, Reduction how) override;
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) override;
  void all_gather(const void* in, void* out, std::int64_t count, Element element) override;
  void all_to_all(const void* in, const ExchangeParts& to, void* out, const ExchangeParts& from,
                  Element element) override;
  void start_all_to_all(const void* in, const ExchangeParts& to, void* out,
                        const ExchangeParts& from, Element element) override;
  void finish_all_to_all() override { wait_all(started_); }
  void broadcast(void* data, std::int64_t count, Element element, int root) override;
  void send(const void* data, std::int64_t count, Element element, int to) override;
  void receive(void* data, std::int64_t count, Element element, int from) override;
  void barrier() override { exchange_headers({}, nullptr, 0); }
  [[nodiscard]] Seconds transfer_began() const override { return transfer_began_; }

 private:
  void exchange_headers(const Call& call, const void* data, std::int64_t bytes);
  [[nodiscard]] std::vector<const void*> parts(const void* own, std::int64_t bytes);
  [[nodiscard]] std::vector<std::int64_t> exchange_counts(const Call& call,
                                                          std::span<const std::int64_t> to);
  void exchange_header(const Call& call, const void* data);
  void wait_all(const Call& call);
  [[nodiscard]] CallHeader& header(int member) {
    return headers_[static_cast<std::size_t>(member)];
  }

  Group group_;
  int rank_;
  Seconds transfer_began_;
  std::string where_;
  std::unique_ptr<Messages> messages_;
  std::vector<CallHeader> headers_;  ///< of the last round, by member
  std::vector<std::byte> scratch_;
  std::vector<std::int64_t> counts_;  ///< of all members' parts, if headers do not hold them
  Call started_;                      ///< the last all_to_all
};

void MessageCommunicator::wait_all(const Call& call) {
  messages_->wait([&] {
    WaitDescription wait(describe(group_, call) + " in the " + where_);
    for (int member = 0; member < size(); ++member) {
      const bool awaited = call.is_collective() ? member != rank_ : member == call.other;
      if (awaited) wait.missing.push_back(group_.rank(member));
    }
    return wait;
  });
}

/// All members announce their calls; afterwards `headers_` holds them, with data that fit.
void MessageCommunicator::exchange_headers(const Call& call, const void* data, std::int64_t bytes) {
  header(rank_).announce(call, data, bytes);
  messages_->gather(reinterpret_cast<std::byte*>(headers_.data()), sizeof(CallHeader));
  wait_all(call);
  transfer_began_ = steady_now();
  for (int other = 0; other < size(); ++other) {
    const auto wrong = disagreement(group_, rank_, call, other, header(other).call);
    if (wrong) throw RunFailure(*wrong);
  }
}

/// By member: own data in place, the others' in scratch memory.
std::vector<const void*> MessageCommunicator::parts(const void* own, std::int64_t bytes) {
  scratch_.resize(static_cast<std::size_t>(bytes * size()));
  std::vector<const void*> all;
  for (int member = 0; member < size(); ++member) {
    all.push_back(member == rank_ ? own : scratch_.data() + member * bytes);
  }
  return all;
}

void MessageCommunicator::all_reduce(void* data, std::int64_t count, Element element,
                                     Reduction how) {
  const Call call{Operation::all_reduce, element, how, 0, count};
  exchange_headers(call, data, call.bytes());
  if (header(rank_).holds(call.bytes())) {
    std::vector<const void*> in;
    for (const CallHeader& each : headers_) in.push_back(each.data.data());
    return reduce_in_order(in, 0, std::array{data}, 0, count, element, how);
  }
  const std::int64_t width = bytes_of(element);
  const std::int64_t slice = kSliceBytes / width * size();
  for (std::int64_t first = 0; first < count; first += slice) {
    const std::int64_t here = std::min(slice, count - first);
    const auto begin = [&](int member) { return here * member / size(); };
    const auto bytes = [&](int member) { return (begin(member + 1) - begin(member)) * width; };
    auto* const at = static_cast<std::byte*>(data) + first * width;
    const auto part = [&](int member) { return at + begin(member) * width; };
    const auto in = parts(part(rank_), bytes(rank_));
    for (int step = 1; step < size(); ++step) {
      const int from = (rank_ + size() - step) % size();
      const int to = (rank_ + step) % size();
      messages_->receive(scratch_.data() + from * bytes(rank_), bytes(rank_), from);
      messages_->send(part(to), bytes(to), to);
    }
    wait_all(call);
    reduce_in_order(in, 0, std::array<void*, 1>{part(rank_)}, 0, bytes(rank_) / width, element,
                    how);
    for (int step = 1; step < size(); ++step) {
      const int from = (rank_ + size() - step) % size();
      messages_->receive(part(from), bytes(from), from);
      messages_->send(part(rank_), bytes(rank_), (rank_ + step) % size());
    }
    wait_all(call);
  }
}

void MessageCommunicator::reduce_scatter(const void* in, void* out, std::int64_t count,
                                         Element element) {
  const Call call{Operation::reduce_scatter, element, Reduction::sum, 0, count};
  exchange_headers(call, nullptr, 0);
  const std::int64_t width = bytes_of(element);
  const std::int64_t slice = kSliceBytes / width;
  for (std::int64_t first = 0; first < count; first += slice) {
    const std::int64_t here = std::min(slice, count - first);
    const auto part = [&](int member) {
      return static_cast<const std::byte*>(in) + (member * count + first) * width;
    };
    const auto all = parts(part(rank_), here * width);
    for (int step = 1; step < size(); ++step) {
      const int from = (rank_ + size() - step) % size();
      const int to = (rank_ + step) % size();
      messages_->receive(scratch_.data() + from * here * width, here * width, from);
      messages_->send(part(to), here * width, to);
    }
    wait_all(call);
    reduce_in_order(all, 0, std::array{out}, first, here, element, Reduction::sum);
  }
}

void MessageCommunicator::all_gather(const void* in, void* out, std::int64_t count,
                                     Element element) {
  const Call call{Operation::all_gather, element, Reduction::sum, 0, count};
  const std::int64_t bytes = call.bytes();
  exchange_headers(call, in, bytes);
  const auto part = [&](int member) { return static_cast<std::byte*>(out) + member * bytes; };
  if (part(rank_) != in && bytes > 0) {
    std::memcpy(part(rank_), in, static_cast<std::size_t>(bytes));
  }
  const bool small = header(rank_).holds(bytes);
  for (int step = 1; step < size() && bytes > 0; ++step) {
    const int from = (rank_ + size() - step) % size();
    if (small) {
      std::memcpy(part(from), header(from).data.data(), static_cast<std::size_t>(bytes));
    } else {
      messages_->receive(part(from), bytes, from);
      messages_->send(in, bytes, (rank_ + step) % size());
    }
  }
  wait_all(call);
}

/// Announces the call with the parts that each member sends to each; the counts travel with the
/// headers if they fit. What each sends here, of member m's part p of k at m·k + p.
std::vector<std::int64_t> MessageCommunicator::exchange_counts(const Call& call,
                                                               std::span<const std::int64_t> to) {
  const auto bytes = static_cast<std::int64_t>(to.size_bytes());
  exchange_headers(call, to.data(), bytes);
  const bool in_headers = CallHeader::holds(bytes);
  if (!in_headers) {
    counts_.resize(to.size() * group_.ranks.size());
    std::ranges::copy(to, counts_.begin() + rank_ * std::ssize(to));
    messages_->gather(reinterpret_cast<std::byte*>(counts_.data()), bytes);
    wait_all(call);
  }
  std::vector<std::int64_t> here(to.size());
  for (int member = 0; member < size(); ++member) {
    const void* const row = in_headers ? static_cast<const void*>(header(member).data.data())
                                       : counts_.data() + member * std::ssize(to);
    std::memcpy(&here[static_cast<std::size_t>(member * call.other)],
                static_cast<const std::int64_t*>(row) + std::ptrdiff_t{rank_} * call.other,
                static_cast<std::size_t>(call.other) * sizeof(std::int64_t));
  }
  return here;
}

void MessageCommunicator::all_to_all(const void* in, const ExchangeParts& to, void* out,
                                     const ExchangeParts& from, Element element) {
  start_all_to_all(in, to, out, from, element);
  finish_all_to_all();
}

void MessageCommunicator::start_all_to_all(const void* in, const ExchangeParts& to, void* out,
                                           const ExchangeParts& from, Element element) {
  const PartCounts parts = PartCounts::of(to, from, size());
  const Call call = started_ = call_of(parts, element, size());
  const std::vector<std::int64_t> sent_here = exchange_counts(call, parts.to);
  for (std::size_t part = 0; part < sent_here.size(); ++part) {
    const int member = static_cast<int>(part) / call.other;
    const auto wrong =
        disagreement(group_, element, member, sent_here[part], rank_, parts.from[part]);
    if (wrong) throw RunFailure(*wrong);
  }
  const std::int64_t width = bytes_of(element);
  const auto sent = [&](std::size_t part) {
    return static_cast<const std::byte*>(in) + parts.to_first[part] * width;
  };
  const auto got = [&](std::size_t part) {
    return static_cast<std::byte*>(out) + parts.from_first[part] * width;
  };
  for (int step = 0; step < size(); ++step) {
    const int source = (rank_ + size() - step) % size();
    const int target = (rank_ + step) % size();
    for (int each = 0; each < call.other; ++each) {
      const auto from_source = static_cast<std::size_t>(source * call.other + each);
      const auto to_target = static_cast<std::size_t>(target * call.other + each);
      const std::int64_t got_bytes = parts.from[from_source] * width;
      const std::int64_t sent_bytes = parts.to[to_target] * width;
      if (step == 0 && got_bytes > 0) {
        std::memcpy(got(from_source), sent(to_target), static_cast<std::size_t>(got_bytes));
      }
      if (step == 0) continue;
      if (got_bytes > 0) messages_->receive(got(from_source), got_bytes, source);
      if (sent_bytes > 0) messages_->send(sent(to_target), sent_bytes, target);
    }
  }
}

void MessageCommunicator::broadcast(void* data, std::int64_t count, Element element, int root) {
  EXPECTS(root >= 0 && root < size(), "the root is a member");
  const Call call{Operation::broadcast, element, Reduction::sum, root, count};
  const std::int64_t bytes = call.bytes();
  exchange_headers(call, data, rank_ == root ? bytes : 0);
  if (header(rank_).holds(bytes)) {
    if (rank_ != root && bytes > 0) {
      std::memcpy(data, header(root).data.data(), static_cast<std::size_t>(bytes));
    }
    return;
  }
  for (int member = 0; member < size(); ++member) {
    if (rank_ == root && member != root) messages_->send(data, bytes, member);
  }
  if (rank_ != root) messages_->receive(data, bytes, root);
  wait_all(call);
}

/// Both sides of a message announce their calls, the sender with data that fit.
void MessageCommunicator::exchange_header(const Call& call, const void* data) {
  CallHeader& own = header(rank_);
  own.announce(call, data, call.bytes());
  CallHeader& theirs = header(call.other);
  messages_->receive(&theirs, sizeof theirs, call.other);
  messages_->send(&own, sizeof own, call.other);
  wait_all(call);
  transfer_began_ = steady_now();
  const auto wrong = disagreement(group_, rank_, call, call.other, theirs.call);
  if (wrong) throw RunFailure(*wrong);
}

void MessageCommunicator::send(const void* data, std::int64_t count, Element element, int to) {
  EXPECTS(to >= 0 && to < size() && to != rank_, "a message goes to another member");
  const Call call{Operation::send, element, Reduction::sum, to, count};
  exchange_header(call, data);
  if (header(rank_).holds(call.bytes())) return;
  messages_->send(data, call.bytes(), to);
  wait_all(call);
}

void MessageCommunicator::receive(void* data, std::int64_t count, Element element, int from) {
  EXPECTS(from >= 0 && from < size() && from != rank_, "a message comes from another member");
  const Call call{Operation::receive, element, Reduction::sum, from, count};
  exchange_header(call, nullptr);
  if (!header(rank_).holds(call.bytes())) {
    messages_->receive(data, call.bytes(), from);
    wait_all(call);
  } else if (count > 0) {
    std::memcpy(data, header(from).data.data(), static_cast<std::size_t>(call.bytes()));
  }
}

}  // namespace

std::unique_ptr<Communicator> message_communicator(const Group& group, int member,
                                                   std::unique_ptr<Messages> messages) {
  return std::make_unique<MessageCommunicator>(group, member, std::move(messages));
}

}  // namespace echelon
