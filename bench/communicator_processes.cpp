// Communication between processes, by MPI and by TCP; bench_communicator measures threads:
//   mpirun --oversubscribe -n 4 bench_communicator_processes [small]
// Small calls are those of all ranks (norm), over TCP a star; large ones those of data-parallel
// ranks, left out with `small`. Each line is the minimum of five repetitions; ring_GBps =
// 2·(n−1)·bytes / t.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/mpi/processes.hpp"
#include "runtime/comm/tcp/world.hpp"

namespace {

using namespace echelon;

constexpr std::int64_t kSizes[] = {64, 16 << 10, 1 << 20, 16 << 20, 64 << 20};

/// Seconds of a call: the best of five times `times` calls.
template <class Call>
double best_of(Communicator& comm, int times, Call&& call) {
  double best = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < 5; ++repetition) {
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) call();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / times);
  }
  return best;
}

std::string small_calls(const char* transport, Communicator& all) {
  constexpr int kTimes = 500;
  std::string table;
  const auto line = [&](const char* call, double best) {
    table +=
        fmt::format("{} {} members:{} best_us={:.1f}\n", transport, call, all.size(), best * 1e6);
  };
  line("barrier", best_of(all, kTimes, [&] { all.barrier(); }));
  double number = 1;
  line("all_reduce bytes:8",
       best_of(all, kTimes, [&] { all.all_reduce(&number, 1, Element::f64, Reduction::max); }));
  return table;
}

std::string all_reduces(const char* transport, Communicator& comm) {
  std::string table;
  for (const std::int64_t bytes : kSizes) {
    std::vector<float> data(static_cast<std::size_t>(bytes / 4), 1.0F);
    const int times = static_cast<int>(std::clamp<std::int64_t>((64 << 20) / bytes, 2, 1000));
    const double best = best_of(comm, times, [&] {
      comm.all_reduce(data.data(), bytes / 4, Element::f32, Reduction::max);
    });
    table += fmt::format("{} all_reduce members:{} bytes:{} best_us={:.1f} ring_GBps={:.2f}\n",
                         transport, comm.size(), bytes, best * 1e6,
                         2e-9 * (comm.size() - 1) * static_cast<double>(bytes) / best);
  }
  return table;
}

/// `small`: without the large calls.
std::string measured(const char* transport, RunThreads& run_threads, World& world, bool small) {
  std::string table;
  const int rank = world.local_ranks().front();
  run_threads.add("member", [&] {
    table = small_calls(transport, world.at(rank, GroupRole::norm));
    if (!small) table += all_reduces(transport, world.at(rank, GroupRole::dp_reduce));
  });
  run_threads.run();
  return table;
}

/// A free port of rank 0, for all.
int common_port(World& world) {
  const int rank = world.local_ranks().front();
  std::int32_t port = rank == 0 ? tcp::port_of(tcp::listen_for("127.0.0.1", 0).value()) : 0;
  Communicator& all = world.at(rank, GroupRole::control);
  if (all.size() > 1) all.broadcast(&port, 1, Element::i32, 0);
  return port;
}

int measure(bool small) {
  const auto place = mpi::start();
  if (!place) {
    std::fputs((place.error().message() + "\n").c_str(), stderr);
    return 3;
  }
  ModelSpec model;
  model.kv_heads = 1;
  ParallelPlan plan;
  plan.dp = place->processes;
  plan.shard_group = plan.dp;
  try {
    std::string table;
    tcp::Rendezvous rendezvous;
    {
      RunThreads run_threads(Seconds{60});
      const auto world = mpi::world(run_threads, plan, model).value();
      rendezvous.port = common_port(*world);
      table = measured("mpi", run_threads, *world, small);
    }
    {
      rendezvous.rank = place->rank;
      rendezvous.size = place->processes;
      rendezvous.address = "127.0.0.1";
      RunThreads run_threads(Seconds{60});
      const auto world = tcp::world(run_threads, plan, model, rendezvous).value();
      table += measured("tcp", run_threads, *world, small);
    }
    if (place->rank == 0) std::fputs(table.c_str(), stdout);
    mpi::finish(Seconds{30});
    return 0;
  } catch (const RunFailure& failure) {
    std::fputs((std::string(failure.what()) + "\n").c_str(), stderr);
    mpi::abort(1);
  }
}

}  // namespace

int main(int count, char** words) {
  return measure(count > 1 && std::string_view(words[1]) == "small");
}
