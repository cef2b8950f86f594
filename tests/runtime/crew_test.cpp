#include "runtime/crew.hpp"

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
int rally(Crew& crew, int times) {
  Gate gate(crew);
  int ball = 0;
  for (int side = 0; side < 2; ++side) {
    crew.add("side " + std::to_string(side), [&, side] {
      for (int i = 0; i < times; ++i) {
        gate.await([&] { return ball % 2 == side; });
        gate.change([&] { ++ball; });
      }
    });
  }
  crew.run();
  return ball;
}

TEST_CASE("members of a crew wait for each other, in real time and directed") {
  Crew real;
  CHECK(rally(real, 100) == 200);
  Numbers numbers(7);
  Crew directed([&](const std::vector<int>& ready) { return numbers.below(ready.size()); });
  CHECK(rally(directed, 100) == 200);
}

TEST_CASE("a directed crew runs in the order that was chosen, and only one member at a time") {
  for (const bool last : {false, true}) {
    Crew crew([&](const std::vector<int>& ready) { return last ? ready.size() - 1 : 0; });
    Gate gate(crew);
    std::string order;
    for (int member = 0; member < 3; ++member) {
      crew.add(std::to_string(member), [&, member] {
        for (int i = 0; i < 2; ++i) {
          gate.await([] { return true; });
          order += std::to_string(member);
        }
      });
    }
    crew.run();
    CHECK(order == (last ? "221100" : "001122"));
  }
}

TEST_CASE("what one member throws ends all, and is what the crew throws") {
  for (const bool directed : {false, true}) {
    Crew::Choose first;
    if (directed) first = [](const std::vector<int>&) { return std::size_t{0}; };
    Crew crew = directed ? Crew(first) : Crew();
    Gate gate(crew);
    crew.add("waits for ever", [&] { gate.await([] { return false; }); });
    crew.add("fails", [] { throw RunFailure(RunFailure::Kind::diverged, "loss is NaN"); });
    CHECK_THROWS_WITH(crew.run(), "loss is NaN");
  }
}

TEST_CASE("members that wait for each other for ever are a hang that names what they were at") {
  const auto stuck = [](Crew& crew) {
    Gate gate(crew);
    for (const char* name : {"rank 0 compute", "rank 1 compute"}) {
      crew.add(name, [&, name] {
        crew.doing(std::string("recv_f of ") + name);
        gate.await([] { return false; });
      });
    }
    try {
      crew.run();
    } catch (const RunFailure& failure) {
      CHECK(failure.kind() == RunFailure::Kind::hang);
      return std::string(failure.what());
    }
    return std::string();
  };
  Crew real(Seconds{0.05});
  Crew directed([](const std::vector<int>&) { return std::size_t{0}; });
  for (const std::string& told : {stuck(real), stuck(directed)}) {
    CHECK(told.find("rank 0 compute: recv_f of rank 0 compute") != std::string::npos);
    CHECK(told.find("rank 1 compute: recv_f of rank 1 compute") != std::string::npos);
  }
}

TEST_CASE("of a peer that is gone it is told what everybody was at") {
  Crew crew;
  std::atomic<int> asked = 0;
  const auto never = [&] {
    ++asked;
    return false;
  };
  crew.add("left", [&] {
    crew.doing("step 3");
    crew.poll(never, [] { return std::string("a reduction among {0,1}"); });
  });
  crew.add("middle", [&] {
    crew.poll(never, []() -> std::string { throw std::runtime_error("a broken device"); });
  });
  crew.add("right", [&] {
    // Longer than both stay awake.
    while (asked < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    throw RunFailure(RunFailure::Kind::peer_lost, "rank 1 is gone");
  });
  try {
    crew.run();
    FAIL("nothing was thrown");
  } catch (const RunFailure& failure) {
    CHECK(failure.kind() == RunFailure::Kind::peer_lost);
    CHECK(std::string(failure.what()) ==
          "rank 1 is gone\n  left: step 3, a reduction among {0,1}\n  middle: -\n  right: -");
  }
}

}  // namespace
}  // namespace echelon
