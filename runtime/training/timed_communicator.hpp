// TimedCommunicator: a communicator whose time counts as a part of the instruction it is used in.
#pragma once

#include "runtime/backend/stream.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {

/// Used on one queue.
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

 private:
  template <class Call>
  void timed(Call call) {
    const ScopedSubSpan sub_span(on_, part_);
    const Seconds begin = steady_now();
    call();
    if (inner_.size() > 1) on_.waited(Within::peers, inner_.transfer_began() - begin);
  }

  Communicator& inner_;
  Stream& on_;
  Within part_;
};

}  // namespace echelon
