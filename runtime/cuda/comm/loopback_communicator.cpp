#include <functional>

#include "core/base/expects.hpp"
#include "runtime/comm/call_communicator.hpp"
#include "runtime/cuda/comm/communicators.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/device/resources.hpp"
#include "runtime/cuda/kernels/launch_errors.hpp"

namespace echelon::cuda {
namespace {

/// A wait refers to the last record of an event, so an event is recorded again only after all waits
/// for it are enqueued. The last member to arrive waits for `ready` of the others before they
/// continue. `over` is waited for after its recorder has continued; so there is one for each
/// partner, and one for all of them: before it is recorded again they have met again.
class LoopbackGroup {
 public:
  LoopbackGroup(RunThreads& run_threads, Group group, std::span<const Stream> streams)
      : group_(std::move(group)),
        monitor_(run_threads),
        streams_(streams.begin(), streams.end()),
        places_(group_.ranks.size()) {
    EXPECTS(streams_.size() == places_.size(), "every member has a stream");
    EXPECTS(size() <= kMaxMembers, "as many members as fit the arguments of a kernel");
    for (Place& each : places_) {
      each.ready = untimed_event();
      for (int other = 0; other < size(); ++other) each.over_for.push_back(untimed_event());
    }
  }

  [[nodiscard]] int size() const { return group_.size(); }
  void carry_out(int member, const Call& call, const void* in, void* out, const PartCounts& parts);

 private:
  /// From `matched` on some member enqueues the call; `away` again when it is there.
  enum class State { away, posted, matched };
  struct Place {
    State state = State::away;
    Call call;
    const void* in = nullptr;
    void* out = nullptr;
    PartCounts parts;
    cudaEvent_t over = nullptr;   ///< of its last call, when another member enqueued it
    Event ready;                  ///< the work on its stream before the call
    std::vector<Event> over_for;  ///< the work it enqueued, by other member; its own entry: for all
  };

  [[nodiscard]] Place& place(int member) { return places_[static_cast<std::size_t>(member)]; }
  [[nodiscard]] Stream stream(int member) const {
    return streams_[static_cast<std::size_t>(member)];
  }
  [[nodiscard]] bool post(int member, const Call& call, const void* in, void* out,
                          const PartCounts& parts);
  void wait_for_the_others(int member);
  [[nodiscard]] std::string waiting(int member);
  [[nodiscard]] std::vector<int> members_of(int member);
  void enqueue_behind_all(int member);
  void enqueue(int member);
  void enqueue_all_to_all(int member);

  const Group group_;
  Monitor monitor_;
  const std::vector<Stream> streams_;
  std::vector<Place> places_;  ///< guarded by monitor_; from `matched` on only state changes
  int arrived_ = 0;            ///< members posted in a collective
};

/// The members of the member's call.
std::vector<int> LoopbackGroup::members_of(int member) {
  const Call& call = place(member).call;
  if (!call.is_collective()) return {member, call.other};
  std::vector<int> all;
  for (int each = 0; each < size(); ++each) all.push_back(each);
  return all;
}

/// True: all its members have arrived, and this member enqueues the call on its stream.
bool LoopbackGroup::post(int member, const Call& call, const void* in, void* out,
                         const PartCounts& parts) {
  std::optional<RunFailure> wrong;
  const bool last = monitor_.with_lock([&] {
    for (int other = 0; other < size() && !wrong; ++other) {
      if (other == member || place(other).state != State::posted) continue;
      wrong = disagreement(group_, member, call, other, place(other).call);
      if (wrong || call.operation != Operation::all_to_all) continue;
      wrong = disagreement(group_, call.element, member, parts, other, place(other).parts);
    }
    if (wrong) return false;
    Place& own = place(member);
    own.state = State::posted;
    own.call = call;
    own.in = in;
    own.out = out;
    own.parts = parts;
    if (call.is_collective()) {
      if (++arrived_ < size()) return false;
      arrived_ = 0;
    } else {
      const Place& other = place(call.other);
      if (other.state != State::posted || other.call.is_collective() ||
          other.call.other != member) {
        return false;
      }
    }
    for (const int each : members_of(member)) place(each).state = State::matched;
    return true;
  });
  if (wrong) throw RunFailure(*wrong);
  return last;
}

void LoopbackGroup::carry_out(int member, const Call& call, const void* in, void* out,
                              const PartCounts& parts) {
  check(cudaEventRecord(place(member).ready.get(), stream(member)), "record an event");
  if (post(member, call, in, out, parts)) return enqueue_behind_all(member);
  wait_for_the_others(member);
  check(cudaStreamWaitEvent(stream(member), place(member).over), "wait for an event");
}

void LoopbackGroup::enqueue_behind_all(int member) {
  const std::vector<int> all = members_of(member);
  for (const int each : all) {
    if (each == member) continue;
    check(cudaStreamWaitEvent(stream(member), place(each).ready.get()), "wait for an event");
  }
  enqueue(member);
  Place& own = place(member);
  const int whom = own.call.is_collective() ? member : own.call.other;
  cudaEvent_t const over = own.over_for[static_cast<std::size_t>(whom)].get();
  check(cudaEventRecord(over, stream(member)), "record an event");
  monitor_.change([&] {
    for (const int each : all) {
      place(each).over = over;
      place(each).state = State::away;
    }
  });
}

void LoopbackGroup::wait_for_the_others(int member) {
  Place& own = place(member);
  try {
    monitor_.await([&own] { return own.state == State::away; },
                   [this, member] { return waiting(member); });
  } catch (...) {
    monitor_.with_lock([&] {
      if (own.state != State::posted) return;
      own.state = State::away;
      if (own.call.is_collective()) --arrived_;
    });
    throw;
  }
}

std::string LoopbackGroup::waiting(int member) {
  const Call& call = place(member).call;
  std::vector<int> missing;
  for (const int each : members_of(member)) {
    if (call.is_collective() ? place(each).state != State::posted : each != member) {
      missing.push_back(each);
    }
  }
  return describe_wait(group_, call, missing);
}

void LoopbackGroup::enqueue_all_to_all(int member) {
  const std::int64_t width = bytes_of(place(member).call.element);
  const auto each = static_cast<std::size_t>(place(member).call.other);
  for (int from = 0; from < size(); ++from) {
    const PartCounts& sender = place(from).parts;
    for (std::size_t part = 0; part < sender.to.size(); ++part) {
      if (sender.to[part] == 0) continue;
      const auto to = static_cast<int>(part / each);
      const std::size_t got = static_cast<std::size_t>(from) * each + part % each;
      check(cudaMemcpyAsync(
                static_cast<std::byte*>(place(to).out) + place(to).parts.from_first[got] * width,
                static_cast<const std::byte*>(place(from).in) + sender.to_first[part] * width,
                static_cast<std::size_t>(sender.to[part] * width), cudaMemcpyDeviceToDevice,
                stream(member)),
            "copy within the GPU");
    }
  }
}

/// The call of matched members, on this one's stream.
void LoopbackGroup::enqueue(int member) {
  const Call& call = place(member).call;
  const std::int64_t bytes = call.bytes();
  if (call.operation == Operation::all_to_all) return enqueue_all_to_all(member);
  if (bytes == 0) return;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Place& each : places_) {
    in.push_back(each.in);
    out.push_back(each.out);
  }
  const auto of = [](auto& all, int which) { return all[static_cast<std::size_t>(which)]; };
  switch (call.operation) {
    case Operation::all_reduce:
      reduce_in_order(stream(member), in, 0, out, 0, call.count, call.element, call.how);
      break;
    case Operation::reduce_scatter:
      for (int part = 0; part < size(); ++part) {
        void* const to = of(out, part);
        reduce_in_order(stream(member), in, part * call.count, std::span(&to, 1), 0, call.count,
                        call.element, Reduction::sum);
      }
      break;
    case Operation::all_gather:
      for (int part = 0; part < size(); ++part) {
        std::vector<void*> to;
        for (void* const each : out) to.push_back(static_cast<std::byte*>(each) + part * bytes);
        copy_to_all(stream(member), of(in, part), to, bytes);
      }
      break;
    case Operation::broadcast: {
      const void* const from = of(in, call.other);
      std::erase(out, from);
      copy_to_all(stream(member), from, out, bytes);
      break;
    }
    case Operation::send:
    case Operation::receive: {
      const bool sends = call.operation == Operation::send;
      check(cudaMemcpyAsync(of(out, sends ? call.other : member),
                            of(in, sends ? member : call.other), static_cast<std::size_t>(bytes),
                            cudaMemcpyDeviceToDevice, stream(member)),
            "copy within the GPU");
      break;
    }
    case Operation::all_to_all:
    case Operation::barrier: break;
  }
  check(take_launch_error(), describe(group_, call).c_str());
}

class LoopbackCommunicator final : public CallCommunicator {
 public:
  LoopbackCommunicator(std::shared_ptr<LoopbackGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] Seconds transfer_began() const override { return {}; }

 private:
  void carry_out(const Call& call, const void* in, void* out, const PartCounts& parts) override {
    group_->carry_out(rank_, call, in, out, parts);
  }

  std::shared_ptr<LoopbackGroup> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> loopback_communicators(RunThreads& run_threads,
                                                                  const Group& group,
                                                                  std::span<const Stream> streams) {
  std::vector<std::unique_ptr<Communicator>> ends;
  const auto shared = std::make_shared<LoopbackGroup>(run_threads, group, streams);
  for (int member = 0; member < group.size(); ++member) {
    ends.push_back(std::make_unique<LoopbackCommunicator>(shared, member));
  }
  return ends;
}

}  // namespace echelon::cuda
