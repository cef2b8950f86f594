// TimedCommunicator: a communicator whose time counts as a part of the instruction it is used in.
#pragma once

#include "runtime/communicator.hpp"
#include "runtime/stream.hpp"

namespace echelon {

/// Used on one queue.
class TimedCommunicator : public Communicator {
 public:
  TimedCommunicator(Communicator& inner, Stream& on, Within part)
      : inner_(inner), on_(on), part_(part) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  void all_reduce(void* data, std::int64_t count, Element element, Reduction how) override {
    const Spending spending(on_, part_);
    inner_.all_reduce(data, count, element, how);
  }
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) override {
    const Spending spending(on_, part_);
    inner_.reduce_scatter(in, out, count, element);
  }
  void all_gather(const void* in, void* out, std::int64_t count, Element element) override {
    const Spending spending(on_, part_);
    inner_.all_gather(in, out, count, element);
  }
  void broadcast(void* data, std::int64_t count, Element element, int root) override {
    const Spending spending(on_, part_);
    inner_.broadcast(data, count, element, root);
  }
  void send(const void* data, std::int64_t count, Element element, int to) override {
    const Spending spending(on_, part_);
    inner_.send(data, count, element, to);
  }
  void receive(void* data, std::int64_t count, Element element, int from) override {
    const Spending spending(on_, part_);
    inner_.receive(data, count, element, from);
  }
  void barrier() override {
    const Spending spending(on_, part_);
    inner_.barrier();
  }

  [[nodiscard]] Seconds met() const override { return inner_.met(); }

 private:
  Communicator& inner_;
  Stream& on_;
  Within part_;
};

}  // namespace echelon
