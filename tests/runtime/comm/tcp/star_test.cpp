// The small calls of all ranks go through rank 0: who has connections, and who is named.
#include <chrono>
#include <set>

#include "core/plan/process_grid.hpp"
#include "tests/runtime/comm/tcp/meetings.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

TEST_CASE("those who wait for the centre of a star name the rank that it waits for") {
  for (const bool barrier : {true, false}) {
    const auto ends = by_processes(
        meetings_of(4), Seconds{1.5},
        [&](RunThreads& run_threads, World& world) {
          const int rank = world.local_ranks().front();
          run_threads.add("rank " + std::to_string(rank), [&, rank, barrier] {
            Communicator& comm = world.at(rank, GroupRole::control);
            comm.barrier();
            if (rank == 2) std::this_thread::sleep_for(std::chrono::seconds(4));
            std::vector<double> data(100'000, 1.0);
            if (barrier) return comm.barrier();
            comm.all_reduce(data.data(), 100'000, Element::f64, Reduction::sum);
          });
        },
        Seconds{60});
    const std::string waited = std::string(barrier ? "barrier" : "all_reduce of 100000 f64") +
                               " in the all (control) group of ranks {0,1,2,3} waits for rank 2";
    for (const TcpEnd& end : ends) {
      INFO(end.reported);
      CHECK(end.exit_code == 4);
      CHECK(end.reported.find(waited) != std::string::npos);
      CHECK(end.reported.find("waits for rank 0") == std::string::npos);
    }
  }
}

TEST_CASE("a lost rank is named by ranks without a connection to it") {
  // tp 2, pp 2: ranks 1 and 2 exchange no data.
  CHECK(tcp::data_peers(peers_plan(4), peers_model(), 1) == std::vector<int>{0, 3});
  CHECK(tcp::data_peers(peers_plan(4), peers_model(), 2) == std::vector<int>{0, 3});
  auto all = meetings_of(4);
  tcp::Rendezvous lost = all[1];
  lost.data_peers = {0, 3};
  all.erase(all.begin() + 1);
  std::jthread dying([&] {
    const auto connected = tcp::join_run(lost);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  const auto ends = by_processes(all, Seconds{60}, [](RunThreads& run_threads, World& world) {
    const int rank = world.local_ranks().front();
    run_threads.add("rank", [&, rank] { world.at(rank, GroupRole::norm).barrier(); });
  });
  for (const TcpEnd& end : ends) {
    INFO(end.reported);
    CHECK(end.exit_code == 7);
    CHECK(end.reported.starts_with("rank 1 is gone: the connection to it (127.0.0.1) ended"));
  }
}

TEST_CASE("a rank connects to rank 0 and to those with which it exchanges data alone") {
  ParallelPlan plan = peers_plan(16);  // tp 2, pp 2, dp 4
  plan.zero = 1;
  auto all = meetings_of(16);
  std::vector<std::vector<int>> connected_to(16);
  std::vector<std::jthread> threads;
  for (tcp::Rendezvous& each : all) {
    threads.emplace_back([&] {
      each.data_peers = tcp::data_peers(plan, peers_model(), each.rank);
      const auto connected = tcp::join_run(each);
      if (!connected) return;
      for (int peer = 0; peer < 16; ++peer) {
        if (connected->peers[static_cast<std::size_t>(peer)])
          connected_to[static_cast<std::size_t>(each.rank)].push_back(peer);
      }
    });
  }
  threads.clear();
  CHECK(connected_to[0].size() == 15);
  const ProcessGrid grid(plan);
  for (int rank = 1; rank < 16; ++rank) {
    std::set<int> expected{0};
    for (const Axis axis : {Axis::tp, Axis::pp, Axis::dp}) {
      for (const int other : grid.group(axis, rank)) expected.insert(other);
    }
    expected.erase(rank);
    CHECK(expected.size() <= 6);  // 1 of tp, 1 of pp, 3 of dp, rank 0
    CHECK(connected_to[static_cast<std::size_t>(rank)] ==
          std::vector<int>(expected.begin(), expected.end()));
  }
}

}  // namespace
}  // namespace echelon
