#include "runtime/threads/run_threads.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

namespace echelon {
namespace {

/// Two members hand a ball to each other `times` times.
int rally(RunThreads& run_threads, int times) {
  Monitor monitor(run_threads);
  int ball = 0;
  for (int side = 0; side < 2; ++side) {
    run_threads.add("side " + std::to_string(side), [&, side] {
      for (int i = 0; i < times; ++i) {
        monitor.await([&] { return ball % 2 == side; });
        monitor.change([&] { ++ball; });
      }
    });
  }
  run_threads.run();
  return ball;
}

TEST_CASE("run threads wait for each other, in real time and directed") {
  RunThreads real;
  CHECK(rally(real, 100) == 200);
  Numbers numbers(7);
  RunThreads directed([&](const std::vector<int>& ready) { return numbers.below(ready.size()); });
  CHECK(rally(directed, 100) == 200);
}

TEST_CASE("a directed run follows the chosen order, one thread at a time") {
  for (const bool last : {false, true}) {
    RunThreads run_threads(
        [&](const std::vector<int>& ready) { return last ? ready.size() - 1 : 0; });
    Monitor monitor(run_threads);
    std::string order;
    for (int member = 0; member < 3; ++member) {
      run_threads.add(std::to_string(member), [&, member] {
        for (int i = 0; i < 2; ++i) {
          monitor.await([] { return true; });
          order += std::to_string(member);
        }
      });
    }
    run_threads.run();
    CHECK(order == (last ? "221100" : "001122"));
  }
}

TEST_CASE("an exception in one thread stops all, and run() rethrows it") {
  for (const bool directed : {false, true}) {
    RunThreads::PickNext first;
    if (directed) first = [](const std::vector<int>&) { return std::size_t{0}; };
    RunThreads run_threads = directed ? RunThreads(first) : RunThreads();
    Monitor monitor(run_threads);
    run_threads.add("waits for ever", [&] { monitor.await([] { return false; }); });
    run_threads.add("fails", [] { throw RunFailure(RunFailure::Kind::diverged, "loss is NaN"); });
    CHECK_THROWS_WITH(run_threads.run(), "loss is NaN");
  }
}

TEST_CASE("members that wait for each other are a hang that names their operations") {
  const auto stuck = [](RunThreads& run_threads) {
    Monitor monitor(run_threads);
    for (const char* name : {"rank 0 compute", "rank 1 compute"}) {
      run_threads.add(name, [&, name] {
        run_threads.set_activity(std::string("recv_f of ") + name);
        monitor.await([] { return false; });
      });
    }
    try {
      run_threads.run();
    } catch (const RunFailure& failure) {
      CHECK(failure.kind() == RunFailure::Kind::hang);
      return std::string(failure.what());
    }
    return std::string();
  };
  RunThreads real(Seconds{0.05});
  RunThreads directed([](const std::vector<int>&) { return std::size_t{0}; });
  for (const std::string& reported : {stuck(real), stuck(directed)}) {
    CHECK(reported.find("rank 0 compute: recv_f of rank 0 compute") != std::string::npos);
    CHECK(reported.find("rank 1 compute: recv_f of rank 1 compute") != std::string::npos);
  }
}

TEST_CASE("a long wait outlives the deadline of its thread, and has an end of its own") {
  const auto waited = [](Seconds limit, int milliseconds) {
    RunThreads run_threads(Seconds{0.02});
    Monitor monitor(run_threads);
    bool done = false;
    run_threads.add("slow", [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      monitor.change([&] { done = true; });
    });
    run_threads.add("patient", [&] {
      const LongWait patient(limit);
      monitor.await([&] { return done; });
    });
    try {
      run_threads.run();
    } catch (const RunFailure& failure) {
      CHECK(failure.kind() == RunFailure::Kind::hang);
      return false;
    }
    return true;
  };
  CHECK(waited(Seconds{60}, 100));
  CHECK_FALSE(waited(Seconds{0.05}, 500));
  CHECK_FALSE(waited(Seconds{0.001}, 500));  // it never shortens the deadline, which passes too
}

TEST_CASE("a raised deadline counts for waits that have begun, and is never lowered") {
  for (const bool polls : {false, true}) {
    RunThreads run_threads(Seconds{0.4});
    Monitor monitor(run_threads);
    std::atomic<bool> done = false;
    run_threads.add("slow", [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      run_threads.raise_deadline(Seconds{60});
      run_threads.raise_deadline(Seconds{0.1});
      std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      monitor.change([&] { done = true; });
    });
    run_threads.add("patient", [&] {
      const auto ready = [&] { return done.load(); };
      polls ? run_threads.poll(ready) : monitor.await(ready);
    });
    CHECK_NOTHROW(run_threads.run());
    CHECK(run_threads.raised_deadline() == Seconds{60});
  }
}

TEST_CASE("after a lost peer the failure names the operation of every thread") {
  RunThreads run_threads;
  std::atomic<int> asked = 0;
  const auto never = [&] {
    ++asked;
    return false;
  };
  run_threads.add("left", [&] {
    run_threads.set_activity("step 3");
    run_threads.poll(never, [] { return std::string("a reduction among {0,1}"); });
  });
  run_threads.add("middle", [&] {
    run_threads.poll(never, []() -> std::string { throw std::runtime_error("a broken device"); });
  });
  run_threads.add("right", [&] {
    // Longer than both remain awake.
    while (asked < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    throw RunFailure(RunFailure::Kind::peer_lost, "rank 1 is gone");
  });
  try {
    run_threads.run();
    FAIL("nothing was thrown");
  } catch (const RunFailure& failure) {
    CHECK(failure.kind() == RunFailure::Kind::peer_lost);
    CHECK(std::string(failure.what()) ==
          "rank 1 is gone\n  left: step 3, a reduction among {0,1}\n  middle: -\n  right: -");
  }
}

}  // namespace
}  // namespace echelon
