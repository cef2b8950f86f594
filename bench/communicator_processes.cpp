// Communication between processes; bench_communicator measures threads:
//   mpirun --oversubscribe -n 4 bench_communicator_processes
// Each line is the minimum of five repetitions; ring_GBps = 2·(n−1)·bytes / t.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "runtime/comm/mpi/processes.hpp"

namespace {

using namespace echelon;

constexpr std::int64_t kSizes[] = {64, 16 << 10, 1 << 20, 16 << 20, 64 << 20};

std::string all_reduces(Communicator& comm) {
  std::string table;
  for (const std::int64_t bytes : kSizes) {
    std::vector<float> data(static_cast<std::size_t>(bytes / 4), 1.0F);
    const int times = static_cast<int>(std::clamp<std::int64_t>((64 << 20) / bytes, 2, 1000));
    double best = std::numeric_limits<double>::infinity();
    for (int repetition = 0; repetition < 5; ++repetition) {
      comm.barrier();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < times; ++i) {
        comm.all_reduce(data.data(), bytes / 4, Element::f32, Reduction::max);
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count() / times);
    }
    table += fmt::format("all_reduce members:{} bytes:{} best_us={:.1f} ring_GBps={:.2f}\n",
                         comm.size(), bytes, best * 1e6,
                         2e-9 * (comm.size() - 1) * static_cast<double>(bytes) / best);
  }
  return table;
}

int measure() {
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
    {
      RunThreads run_threads(Seconds{60});
      const auto world = mpi::world(run_threads, plan, model).value();
      run_threads.add("member",
                      [&] { table = all_reduces(world->at(place->rank, GroupRole::norm)); });
      run_threads.run();
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

int main() { return measure(); }
