// Communication between threads: all-reduce by size and number of members versus a plain copy, and
// the time of a small call. Member 0 measures the time inside the call, between barriers; the
// minimum over the repetitions counts, because other programs may use the machine.
//
// A ring all-reduce of S bytes moves 2·(n−1)/n·S per member and 2·(n−1)·S in total. Each byte is
// read once and written once, as in a copy. `ring_GBps` = 2·(n−1)·S / t; `copy_GBps`: the bytes
// that n threads copy concurrently, counted once; `share` = ring / copy.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/comm/thread_communicator.hpp"

namespace {

using namespace echelon;

double seconds_of(int times, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / times;
}

/// Runs `work` on each of the members, one thread per member.
void by_members(int members, const std::function<void(Communicator&)>& work) {
  RunThreads run_threads;
  Group group{"bench", {}};
  for (int rank = 0; rank < members; ++rank) group.ranks.push_back(rank);
  const auto ends = thread_communicators(run_threads, group);
  for (const auto& end : ends) run_threads.add("member", [&] { work(*end); });
  run_threads.run();
}

void all_reduce(benchmark::State& state) {
  const auto members = static_cast<int>(state.range(0));
  const std::int64_t count = state.range(1) / 4;
  const int times =
      static_cast<int>(std::clamp<std::int64_t>((64 << 20) / state.range(1), 2, 2000));
  double best = std::numeric_limits<double>::infinity();
  double best_copy = best;
  for (auto _ : state) {
    double took = 0;
    by_members(members, [&](Communicator& comm) {
      std::vector<float> data(static_cast<std::size_t>(count), 1.0F);
      std::vector<float> other(data);
      const auto copy = [&] {
        std::memcpy(other.data(), data.data(), data.size() * 4);
        benchmark::ClobberMemory();
      };
      comm.barrier();
      const double copied = seconds_of(times, [&] {
        copy();
        comm.barrier();
      });
      const double reduced = seconds_of(
          times, [&] { comm.all_reduce(data.data(), count, Element::f32, Reduction::max); });
      if (comm.rank() == 0) {
        best_copy = std::min(best_copy, copied);
        best = std::min(best, reduced);
        took = reduced;
      }
    });
    state.SetIterationTime(took);
  }
  const auto bytes = static_cast<double>(state.range(1));
  const double ring = 2 * (members - 1) * bytes / best;
  const double copy = members * bytes / best_copy;
  state.counters["best_us"] = best * 1e6;
  state.counters["ring_GBps"] = ring * 1e-9;
  state.counters["copy_GBps"] = copy * 1e-9;
  state.counters["share"] = ring / copy;
}

/// One-way time of a message: half of a round trip.
void send_receive(benchmark::State& state) {
  const std::int64_t count = state.range(0) / 4;
  const int times =
      static_cast<int>(std::clamp<std::int64_t>((64 << 20) / state.range(0), 2, 2000));
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    double took = 0;
    by_members(2, [&](Communicator& comm) {
      std::vector<float> data(static_cast<std::size_t>(count), 1.0F);
      comm.barrier();
      const double both = seconds_of(times, [&] {
        if (comm.rank() == 0) comm.send(data.data(), count, Element::f32, 1);
        comm.receive(data.data(), count, Element::f32, 1 - comm.rank());
        if (comm.rank() == 1) comm.send(data.data(), count, Element::f32, 0);
      });
      if (comm.rank() == 0) took = both / 2;
    });
    best = std::min(best, took);
    state.SetIterationTime(took);
  }
  state.counters["best_us"] = best * 1e6;
  state.counters["GBps"] = static_cast<double>(state.range(0)) / best * 1e-9;
}

BENCHMARK(all_reduce)
    ->ArgNames({"members", "bytes"})
    ->ArgsProduct({{2, 4, 8}, {64, 16 << 10, 1 << 20, 16 << 20, 64 << 20}})
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(send_receive)
    ->ArgName("bytes")
    ->Arg(64)
    ->Arg(16 << 10)
    ->Arg(1 << 20)
    ->Arg(16 << 20)
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
