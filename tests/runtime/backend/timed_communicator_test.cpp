// What counts as the time of a collective, on a queue of a device and on one that calls itself.
#include "runtime/backend/timed_communicator.hpp"

#include <string>

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// Notes what is enqueued; with or without a side stream.
class NotingStream final : public Stream, private SideStream {
 public:
  explicit NotingStream(bool has_side) : has_side_(has_side) {}
  [[nodiscard]] const std::string& notes() const { return notes_; }
  void note(const std::string& what) { notes_ += what + " "; }

  void begin(const Instruction&) override {}
  WithinTimes end(const Instruction&) override { return {}; }
  void wait(const Instruction&) override {}
  void set_mark(std::size_t) override {}
  void wait_for_mark(std::size_t) override {}
  void start(Within part) override { note(part == Within::ep_comm ? "start" : "other"); }
  void stop() override { note("stop"); }
  [[nodiscard]] SideStream* side() override { return has_side_ ? this : nullptr; }
  void upload(const void*, void*, std::int64_t) override {}
  void download(const void*, void*, std::int64_t) override {}
  void clear(void*, std::int64_t) override {}

 private:
  void fork() override { note("fork"); }
  Mark mark() override {
    note("mark");
    return 7;
  }
  void join(Mark mark) override { note("join " + std::to_string(mark)); }

  bool has_side_;
  std::string notes_;
};

/// Alone in its group.
class NotingCommunicator final : public Communicator {
 public:
  explicit NotingCommunicator(NotingStream& on) : on_(on) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void all_reduce(void*, std::int64_t, Element, Reduction) override { on_.note("call"); }
  void reduce_scatter(const void*, void*, std::int64_t, Element) override {}
  void all_gather(const void*, void*, std::int64_t, Element) override {}
  void all_to_all(const void*, const ExchangeParts&, void*, const ExchangeParts&,
                  Element) override {}
  void start_all_to_all(const void*, const ExchangeParts&, void*, const ExchangeParts&,
                        Element) override {
    on_.note("begin");
  }
  void finish_all_to_all() override { on_.note("finish"); }
  void broadcast(void*, std::int64_t, Element, int) override {}
  void send(const void*, std::int64_t, Element, int) override {}
  void receive(void*, std::int64_t, Element, int) override {}
  void barrier() override {}
  [[nodiscard]] Seconds transfer_began() const override { return {}; }

 private:
  NotingStream& on_;
};

std::string notes_of(bool has_side, bool begun) {
  NotingStream stream(has_side);
  NotingCommunicator inner(stream);
  TimedCommunicator timed(inner, stream, Within::ep_comm);
  if (begun) {
    const auto pending = timed.begin_all_reduce(nullptr, 0, Element::f32, Reduction::sum);
    stream.note("kernel");
    timed.await(pending);
  } else {
    timed.all_reduce(nullptr, 0, Element::f32, Reduction::sum);
  }
  return stream.notes();
}

TEST_CASE("the time of a collective that a queue waits for begins before the host calls it") {
  CHECK(notes_of(true, false) == "start fork call mark join 7 stop ");
  CHECK(notes_of(false, false) == "start call stop ");
}

TEST_CASE("an all-to-all that was begun ends behind the kernels beside it") {
  const auto notes = [](bool has_side) {
    NotingStream stream(has_side);
    NotingCommunicator inner(stream);
    TimedCommunicator timed(inner, stream, Within::ep_comm);
    const std::vector<std::int64_t> none = {0};
    const auto pending = timed.begin_all_to_all(nullptr, none, nullptr, none, Element::f32);
    stream.note("kernel");
    timed.await_all_to_all(pending);
    return stream.notes();
  };
  CHECK(notes(true) == "fork begin mark kernel start finish join 7 stop ");
  CHECK(notes(false) == "start begin stop kernel start finish stop ");
}

TEST_CASE("the time of a collective that runs beside kernels is what the queue waits behind them") {
  CHECK(notes_of(true, true) == "fork call mark kernel start join 7 stop ");
  CHECK(notes_of(false, true) == "start call stop kernel ");
}

}  // namespace
}  // namespace echelon
