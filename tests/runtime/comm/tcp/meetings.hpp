// Threads of a test in the place of a run's processes, connected by TCP.
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/tcp/world.hpp"
#include "runtime/threads/run_threads.hpp"
#include "tests/runtime/comm/peers.hpp"

namespace echelon {

/// A port that is free at the moment.
inline int free_port() { return tcp::port_of(tcp::listen_for("127.0.0.1", 0).value()); }

inline tcp::Rendezvous rendezvous_at(int port, int rank, int size) {
  tcp::Rendezvous rendezvous;
  rendezvous.rank = rank;
  rendezvous.size = size;
  rendezvous.address = "127.0.0.1";
  rendezvous.port = port;
  rendezvous.plan = "a plan";
  rendezvous.limit = Seconds{20};
  return rendezvous;
}

/// How a process ended: "" or its message, and the exit code.
struct TcpEnd {
  std::string reported;
  int exit_code = 0;
};

/// `work(run_threads, world)` adds members; each process has run threads of its own. The first one
/// may have another deadline.
template <class Work>
std::vector<TcpEnd> by_processes(const std::vector<tcp::Rendezvous>& all,
                                 std::optional<Seconds> deadline, Work&& work,
                                 std::optional<Seconds> of_first = {}) {
  std::vector<TcpEnd> ends(all.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        RunThreads run_threads(all[i].rank == 0 && of_first ? of_first : deadline);
        auto world = tcp::world(run_threads, peers_plan(all[i].size), peers_model(), all[i]);
        if (!world) {
          ends[i] = {world.error().message(), world.error().kind == Error::Kind::input ? 2 : 3};
          return;
        }
        work(run_threads, **world);
        run_threads.run();
      } catch (const RunFailure& failure) {
        ends[i] = {failure.what(), exit_code_of(failure.kind())};
      }
    });
  }
  threads.clear();
  return ends;
}

inline std::vector<tcp::Rendezvous> meetings_of(int size,
                                                const std::string& address = "127.0.0.1") {
  const int port = free_port();
  std::vector<tcp::Rendezvous> all;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(rendezvous_at(port, rank, size));
    all.back().address = address;
  }
  return all;
}

/// Every process only does the rendezvous; the message of each, "" if it is connected.
inline std::vector<std::string> met_by(std::vector<tcp::Rendezvous> all) {
  std::vector<std::string> reported(all.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto connected = tcp::join_run(all[i]);
      if (!connected) reported[i] = connected.error().message();
    });
  }
  threads.clear();
  return reported;
}

}  // namespace echelon
