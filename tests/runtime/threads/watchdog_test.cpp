#include "runtime/threads/watchdog.hpp"

#include <deque>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

using test::lacks;

/// What one side sends, the other receives.
class Wire {
 public:
  void send(int from, int to, const StatusMessage& message) {
    const std::lock_guard lock(mutex_);
    on_the_way_[static_cast<std::size_t>(to)].emplace_back(from, message);
  }
  std::optional<StatusMessage> receive(int at, int& from) {
    const std::lock_guard lock(mutex_);
    auto& here = on_the_way_[static_cast<std::size_t>(at)];
    if (here.empty()) return std::nullopt;
    from = here.front().first;
    const StatusMessage message = here.front().second;
    here.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::array<std::deque<std::pair<int, StatusMessage>>, 3> on_the_way_;
};

class WireEnd final : public StatusLink {
 public:
  WireEnd(Wire& wire, int rank) : wire_(wire), rank_(rank) {}
  void send(int to, const StatusMessage& message) override { wire_.send(rank_, to, message); }
  std::optional<StatusMessage> receive(int& from) override { return wire_.receive(rank_, from); }

 private:
  Wire& wire_;
  int rank_;
};

/// The verdicts of the processes with a watchdog, when the members of `working` never wait and all
/// others wait for rank 2.
std::vector<std::string> verdicts(const std::vector<int>& alive, const std::vector<int>& working) {
  Wire wire;
  std::vector<std::string> out(alive.size());
  std::vector<std::jthread> processes;
  std::atomic<std::size_t> ended = 0;
  for (std::size_t i = 0; i < alive.size(); ++i) {
    processes.emplace_back([&, i] {
      const int rank = alive[i];
      RunThreads run_threads(Seconds{60});
      Monitor monitor(run_threads);
      WireEnd link(wire, rank);
      Watchdog watchdog(run_threads, rank, 3, &link, Seconds{1});
      const bool works = std::find(working.begin(), working.end(), rank) != working.end();
      std::atomic<bool> over = false;
      run_threads.add(
          "rank " + std::to_string(rank),
          [&] {
            run_threads.set_activity("step 1 #7 F c0 m0", (1U << 25) + 7);
            while (works && !over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            if (!works) monitor.await([&] { return over.load(); });
          },
          rank);
      std::jthread watcher([&] {
        const std::string expected = "rank 2 has";
        const std::string other = "rank 2 holds";
        for (int k = 0; k < 4000 && out[i].find("rank 2") != 0; ++k) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          out[i] = watchdog.verdict();
        }
        // The others still need its signs of life.
        for (++ended; ended < alive.size();)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        over = true;
        monitor.wake();
      });
      try {
        run_threads.run();
      } catch (const RunFailure&) {  // the watchdog's own
      }
    });
  }
  processes.clear();
  return out;
}

TEST_CASE("every process names the one that is silent") {
  for (const std::string& verdict : verdicts({0, 1}, {}))
    CHECK(lacks(verdict, "rank 2 has sent nothing for ") == "");
}

TEST_CASE("every process names the one that works while the others wait") {
  for (const std::string& verdict : verdicts({0, 1, 2}, {2}))
    CHECK(lacks(verdict, "rank 2 holds up the others: it has been at step 1 #7 F c0 m0 for ") ==
          "");
}

TEST_CASE("a rank that has not begun yet has lasted since it was added") {
  RunThreads run_threads(Seconds{60});
  run_threads.add(
      "rank 0", [] {}, 0);
  const std::vector<RankProgress> all = run_threads.progress();
  REQUIRE(all.size() == 1);
  CHECK(all[0].lasting < Seconds{10});
  run_threads.run();
}

TEST_CASE("a rank that nobody waits for is ended by the watchdog") {
  RunThreads run_threads(Seconds{60});
  Watchdog watchdog(run_threads, 0, 1, nullptr, Seconds{0.2});
  run_threads.add(
      "rank 0",
      [&] {
        run_threads.set_activity("step 0 #3 F c0 m0", (1U << 24) + 3);
        while (!run_threads.stopping()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      },
      0);
  try {
    run_threads.run();
    FAIL("the run went on");
  } catch (const RunFailure& failure) {
    CHECK(failure.kind() == RunFailure::Kind::hang);
    CHECK(lacks(failure.what(), "rank 0 holds up the others: it has been at step 0 #3 F") == "");
  }
}

TEST_CASE("the watchdog's patience grows with the deadline of the run") {
  RunThreads run_threads(Seconds{60});
  run_threads.raise_deadline(Seconds{60});
  Watchdog watchdog(run_threads, 0, 1, nullptr, Seconds{0.05});
  run_threads.add(
      "rank 0",
      [&] {
        run_threads.set_activity("step 0 #3 F c0 m0", (1U << 24) + 3);
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
      },
      0);
  CHECK_NOTHROW(run_threads.run());
}

}  // namespace
}  // namespace echelon
