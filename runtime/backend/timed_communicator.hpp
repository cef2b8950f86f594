// TimedCommunicator: a communicator whose exposed time counts as a part of the instruction it is
// used in, and whose collectives may run beside the kernels of the queue.
#pragma once

#include <optional>
#include <span>

#include "runtime/backend/stream.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {

/// Used on one queue. If the queue has a side stream, the calls of `inner` are enqueued there.
class TimedCommunicator : public Communicator {
 public:
  TimedCommunicator(Communicator& inner, Stream& on, Within part)
      : inner_(inner), on_(on), part_(part) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  void all_reduce(void* data, std::int64_t count, Element element, Reduction how) override {
    timed([&] { inner_.all_reduce(data, count, element, how); });
  }
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) override {
    timed([&] { inner_.reduce_scatter(in, out, count, element); });
  }
  void all_gather(const void* in, void* out, std::int64_t count, Element element) override {
    timed([&] { inner_.all_gather(in, out, count, element); });
  }
  void all_to_all(const void* in, const ExchangeParts& to, void* out, const ExchangeParts& from,
                  Element element) override {
    timed([&] { inner_.all_to_all(in, to, out, from, element); });
  }
  void broadcast(void* data, std::int64_t count, Element element, int root) override {
    timed([&] { inner_.broadcast(data, count, element, root); });
  }
  void send(const void* data, std::int64_t count, Element element, int to) override {
    timed([&] { inner_.send(data, count, element, to); });
  }
  void receive(void* data, std::int64_t count, Element element, int from) override {
    timed([&] { inner_.receive(data, count, element, from); });
  }
  void barrier() override {
    timed([&] { inner_.barrier(); });
  }

  [[nodiscard]] Seconds transfer_began() const override { return inner_.transfer_began(); }

  /// A collective that was begun: the queue's later work runs beside it until await(). Meanwhile
  /// nothing may write its operands or read its results. None: it is complete.
  using Pending = std::optional<SideStream::Mark>;
  [[nodiscard]] Pending begin_all_reduce(void* data, std::int64_t count, Element element,
                                         Reduction how) {
    return begin([&] { inner_.all_reduce(data, count, element, how); });
  }
  [[nodiscard]] Pending begin_reduce_scatter(const void* in, void* out, std::int64_t count,
                                             Element element) {
    return begin([&] { inner_.reduce_scatter(in, out, count, element); });
  }
  [[nodiscard]] Pending begin_all_gather(const void* in, void* out, std::int64_t count,
                                         Element element) {
    return begin([&] { inner_.all_gather(in, out, count, element); });
  }
  void await(const Pending& pending) {
    if (!pending) return;
    const ScopedSubSpan sub_span(on_, part_);
    on_.side()->join(*pending);
  }
  /// Of these one at a time. Without a side stream, what moves data between processes goes on by
  /// itself meanwhile.
  [[nodiscard]] Pending begin_all_to_all(const void* in, const ExchangeParts& to, void* out,
                                         const ExchangeParts& from, Element element) {
    return begin([&] { inner_.start_all_to_all(in, to, out, from, element); });
  }
  void await_all_to_all(const Pending& pending) {
    const ScopedSubSpan sub_span(on_, part_);
    inner_.finish_all_to_all();
    if (pending) on_.side()->join(*pending);
  }

 private:
  template <class Call>
  [[nodiscard]] Pending begin(Call call) {
    if (SideStream* const side = on_.side(); side != nullptr) return beside(*side, call);
    const ScopedSubSpan sub_span(on_, part_);
    here(call);
    return {};
  }
  /// The sub-span begins before the call: a queue that has nothing else to do waits for the host's
  /// part of it too.
  template <class Call>
  void timed(Call call) {
    const ScopedSubSpan sub_span(on_, part_);
    if (SideStream* const side = on_.side(); side != nullptr) {
      side->join(beside(*side, call));
    } else {
      here(call);
    }
  }
  template <class Call>
  [[nodiscard]] static SideStream::Mark beside(SideStream& side, Call call) {
    side.fork();
    call();
    return side.mark();
  }
  /// In a sub-span of the part.
  template <class Call>
  void here(Call call) {
    const Seconds start = steady_now();
    call();
    if (inner_.size() > 1) on_.waited({}, inner_.transfer_began() - start);
  }

  Communicator& inner_;
  Stream& on_;
  Within part_;
};

}  // namespace echelon
