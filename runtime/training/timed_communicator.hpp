// TimedCommunicator: a communicator that knows how long its owner has spent in it.
#pragma once

#include <utility>

#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"

namespace echelon {

/// Used by one thread.
class TimedCommunicator : public Communicator {
 public:
  explicit TimedCommunicator(Communicator& inner) : inner_(inner) {}
  [[nodiscard]] const Seconds& spent() const { return spent_; }
  /// What was spent since the last call of this.
  [[nodiscard]] Seconds take() { return std::exchange(spent_, Seconds{}); }

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  void all_reduce(void* data, std::int64_t count, Element element, Reduction how) override {
    const Watch watch(*this);
    inner_.all_reduce(data, count, element, how);
  }
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) override {
    const Watch watch(*this);
    inner_.reduce_scatter(in, out, count, element);
  }
  void all_gather(const void* in, void* out, std::int64_t count, Element element) override {
    const Watch watch(*this);
    inner_.all_gather(in, out, count, element);
  }
  void broadcast(void* data, std::int64_t count, Element element, int root) override {
    const Watch watch(*this);
    inner_.broadcast(data, count, element, root);
  }
  void send(const void* data, std::int64_t count, Element element, int to) override {
    const Watch watch(*this);
    inner_.send(data, count, element, to);
  }
  void receive(void* data, std::int64_t count, Element element, int from) override {
    const Watch watch(*this);
    inner_.receive(data, count, element, from);
  }
  void barrier() override {
    const Watch watch(*this);
    inner_.barrier();
  }

  [[nodiscard]] Seconds met() const override { return inner_.met(); }

 private:
  class Watch {
   public:
    explicit Watch(TimedCommunicator& owner) : owner_(owner), begin_(steady_now()) {}
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() { owner_.spent_ += steady_now() - begin_; }

   private:
    TimedCommunicator& owner_;
    Seconds begin_;
  };

  Communicator& inner_;
  Seconds spent_;
};

}  // namespace echelon
