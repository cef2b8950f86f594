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
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_.size(); }

  void all_reduce(void* data, std::int64_t count, Element element, Reduction how) override;
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) override;
  void all_gather(const void* in, void* out, std::int64_t count, Element element) override;
  void broadcast(void* data, std::int64_t count, Element element, int root) override;
  void send(const void* data, std::int64_t count, Element element, int to) override;
  void receive(void* data, std::int64_t count, Element element, int from) override;
  void barrier() override { exchange_headers({}, nullptr, 0); }
  [[nodiscard]] Seconds transfer_began() const override { return transfer_began_; }

 private:
  void exchange_headers(const Call& call, const void* data, std::int64_t bytes);
  [[nodiscard]] std::vector<const void*> parts(const void* own, std::int64_t bytes);
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
