#include "runtime/comm/thread_communicator.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/comm/call_communicator.hpp"
#include "runtime/comm/ordered_reduction.hpp"
#include "runtime/comm/solo_communicator.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {
namespace {

/// Bytes of one member in one piece of work: those of eight members fit a second-level cache.
constexpr std::int64_t kPieceBytes = 128 * 1024;

/// A call that all its members have joined. Pieces go to the first member that asks; the result of
/// a piece does not depend on the member.
struct SharedWork {
  Call call;
  int giver = 0;  ///< send: the member with the data
  std::int64_t pieces = 0;
  std::int64_t pieces_per_part = 0;
  Seconds transfer_began;
  std::atomic<std::int64_t> next = 0;
  std::atomic<std::int64_t> left = 0;
};

class ThreadGroup {
 public:
  ThreadGroup(RunThreads& run_threads, Group group)
      : group_(std::move(group)), monitor_(run_threads), places_(group_.ranks.size()) {}

  [[nodiscard]] int size() const { return group_.size(); }
  void carry_out(int member, const Call& call, const void* in, void* out, const PartCounts& parts);
  /// Of the member's last call, if there was one; for that member alone.
  [[nodiscard]] Seconds transfer_began(int member) const {
    const auto& work = places_[static_cast<std::size_t>(member)].work;
    return work != nullptr ? work->transfer_began : Seconds{};
  }

 private:
  /// State of a member. Only `posted` members can leave before the call is over: from `matched` on
  /// others use their memory.
  enum class State { away, posted, matched };
  struct Place {
    State state = State::away;
    Call call;
    const void* in = nullptr;
    void* out = nullptr;
    PartCounts parts;
    std::shared_ptr<SharedWork> work;
  };

  [[nodiscard]] Place& place(int member) { return places_[static_cast<std::size_t>(member)]; }
  [[nodiscard]] bool involves(const SharedWork& work, int member) const;
  [[nodiscard]] bool match(int member);
  void open(int member);
  void end(const SharedWork& work);
  void wait_for_the_others(int member);
  void take_pieces(SharedWork& work);
  void do_piece(const SharedWork& work, std::int64_t piece);
  void do_part_of_all_to_all(const SharedWork& work, std::int64_t part, std::int64_t at);
  void copy_piece(int from, std::int64_t from_at, int to, std::int64_t to_at, std::int64_t bytes);
  [[nodiscard]] WaitDescription waiting(int member);

  const Group group_;
  Monitor monitor_;
  std::vector<Place> places_;  ///< guarded by monitor_; from `matched` on only state changes
  int arrived_ = 0;            ///< members posted in a collective
};

bool ThreadGroup::involves(const SharedWork& work, int member) const {
  return work.call.is_collective() || member == work.giver || member == work.call.other;
}

/// Under the lock: the member's post is the last one its call needs.
bool ThreadGroup::match(int member) {
  const Call& call = place(member).call;
  if (call.is_collective()) return ++arrived_ == size();
  const Place& other = place(call.other);
  return other.state == State::posted && !other.call.is_collective() && other.call.other == member;
}

/// Under the lock: all members have arrived.
void ThreadGroup::open(int member) {
  const Call call = place(member).call;
  auto work = std::make_shared<SharedWork>();
  work->call = call;
  work->transfer_began = steady_now();
  if (call.operation == Operation::send) work->giver = member;
  if (call.operation == Operation::receive) {
    work->giver = call.other;
    work->call.other = member;
  }
  const bool by_part =
      call.operation == Operation::reduce_scatter || call.operation == Operation::all_gather;
  std::int64_t bytes = call.bytes();
  std::int64_t parts = by_part ? size() : 1;
  if (call.operation == Operation::all_to_all) {
    parts = std::int64_t{size()} * size() * call.other;
    bytes = 0;
    for (const Place& each : places_) {
      bytes = std::max(bytes, *std::ranges::max_element(each.parts.to) * bytes_of(call.element));
    }
  }
  work->pieces_per_part = (bytes + kPieceBytes - 1) / kPieceBytes;
  work->pieces = work->pieces_per_part * parts;
  work->left = work->pieces;
  if (call.is_collective()) arrived_ = 0;
  for (int each = 0; each < size(); ++each) {
    if (!involves(*work, each)) continue;
    place(each).state = State::matched;
    place(each).work = work;
  }
  if (work->pieces == 0) end(*work);
}

/// Under the lock.
void ThreadGroup::end(const SharedWork& work) {
  for (int each = 0; each < size(); ++each) {
    if (involves(work, each)) place(each).state = State::away;
  }
}

void ThreadGroup::carry_out(int member, const Call& call, const void* in, void* out,
                            const PartCounts& parts) {
  Place& own = place(member);
  std::optional<RunFailure> wrong;
  const bool complete = monitor_.with_lock([&] {
    for (int other = 0; other < size() && !wrong; ++other) {
      if (other == member || place(other).state != State::posted) continue;
      wrong = disagreement(group_, member, call, other, place(other).call);
      if (wrong || call.operation != Operation::all_to_all) continue;
      wrong = disagreement(group_, call.element, member, parts, other, place(other).parts);
    }
    if (wrong) return false;
    own = {State::posted, call, in, out, parts, nullptr};
    if (!match(member)) return false;
    open(member);
    return true;
  });
  if (wrong) throw RunFailure(*wrong);
  if (!complete) {
    wait_for_the_others(member);
  } else if (own.work->pieces != 1) {
    monitor_.wake();
  }
  take_pieces(*own.work);
  const std::function<bool()> over = [&own] { return own.state == State::away; };
  monitor_.await_uninterruptibly(over);
}

/// Until the call is over or there is a piece to take.
void ThreadGroup::wait_for_the_others(int member) {
  Place& own = place(member);
  const auto ready = [&own] {
    return own.state == State::away ||
           (own.state == State::matched && own.work->next.load() < own.work->pieces);
  };
  try {
    monitor_.await(ready, [this, member] { return waiting(member); });
  } catch (...) {
    const bool gone = monitor_.with_lock([&] {
      if (own.state != State::posted) return false;
      own.state = State::away;
      if (own.call.is_collective()) --arrived_;
      return true;
    });
    if (gone) throw;
  }
}

WaitDescription ThreadGroup::waiting(int member) {
  const Call& call = place(member).call;
  std::vector<int> missing;
  for (int each = 0; each < size(); ++each) {
    if (call.is_collective() ? place(each).state != State::posted : each == call.other) {
      missing.push_back(each);
    }
  }
  const std::string text = describe_wait(group_, call, missing);
  for (int& each : missing) each = group_.rank(each);
  return {text, std::move(missing)};
}

void ThreadGroup::take_pieces(SharedWork& work) {
  for (;;) {
    const std::int64_t piece = work.next.fetch_add(1);
    if (piece >= work.pieces) return;
    do_piece(work, piece);
    if (work.left.fetch_sub(1) == 1) monitor_.change([&] { end(work); });
  }
}

void ThreadGroup::copy_piece(int from, std::int64_t from_at, int to, std::int64_t to_at,
                             std::int64_t bytes) {
  const auto* source = static_cast<const std::byte*>(place(from).in) + from_at;
  auto* target = static_cast<std::byte*>(place(to).out) + to_at;
  if (source != target) std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

/// A piece of a part that one member sends to another; small parts have fewer pieces.
void ThreadGroup::do_part_of_all_to_all(const SharedWork& work, std::int64_t part,
                                        std::int64_t at) {
  const std::int64_t width = bytes_of(work.call.element);
  const int each = work.call.other;
  const auto from = static_cast<int>(part / (size() * each));
  const auto to = static_cast<int>(part / each % size());
  const auto sent = static_cast<std::size_t>(part % (size() * each));
  const auto got = static_cast<std::size_t>(from * each + part % each);
  const PartCounts& sender = place(from).parts;
  const std::int64_t count = std::min(kPieceBytes / width, sender.to[sent] - at);
  if (count <= 0) return;
  copy_piece(from, (sender.to_first[sent] + at) * width, to,
             (place(to).parts.from_first[got] + at) * width, count * width);
}

void ThreadGroup::do_piece(const SharedWork& work, std::int64_t piece) {
  const Call& call = work.call;
  const std::int64_t width = bytes_of(call.element);
  const auto part = static_cast<int>(piece / work.pieces_per_part);
  const std::int64_t at = piece % work.pieces_per_part * (kPieceBytes / width);
  const std::int64_t count = std::min(kPieceBytes / width, call.count - at);
  const std::int64_t at_part = part * call.count + at;
  switch (call.operation) {
    case Operation::all_reduce:
    case Operation::reduce_scatter: {
      std::vector<const void*> in;
      std::vector<void*> out;
      for (const Place& each : places_) in.push_back(each.in);
      if (call.operation == Operation::reduce_scatter) {
        out.push_back(place(part).out);
        return reduce_in_order(in, at_part, out, at, count, call.element, Reduction::sum);
      }
      for (const Place& each : places_) out.push_back(each.out);
      return reduce_in_order(in, at, out, at, count, call.element, call.how);
    }
    case Operation::all_gather:
      for (int to = 0; to < size(); ++to) {
        copy_piece(part, at * width, to, at_part * width, count * width);
      }
      return;
    case Operation::all_to_all: return do_part_of_all_to_all(work, part, at);
    case Operation::broadcast:
      for (int to = 0; to < size(); ++to) {
        if (to != call.other) copy_piece(call.other, at * width, to, at * width, count * width);
      }
      return;
    case Operation::send:
    case Operation::receive:
      return copy_piece(work.giver, at * width, call.other, at * width, count * width);
    case Operation::barrier: return;
  }
}

class ThreadCommunicator final : public CallCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] Seconds transfer_began() const override { return group_->transfer_began(rank_); }

 private:
  void carry_out(const Call& call, const void* in, void* out, const PartCounts& parts) override {
    group_->carry_out(rank_, call, in, out, parts);
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> thread_communicators(RunThreads& run_threads,
                                                                const Group& group) {
  std::vector<std::unique_ptr<Communicator>> ends;
  if (group.size() == 1) {
    ends.push_back(solo_communicator());
    return ends;
  }
  const auto shared = std::make_shared<ThreadGroup>(run_threads, group);
  for (int member = 0; member < group.size(); ++member) {
    ends.push_back(std::make_unique<ThreadCommunicator>(shared, member));
  }
  return ends;
}

}  // namespace echelon
