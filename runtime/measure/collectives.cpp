// Collectives between the ranks of this machine: threads, or processes under mpirun.
#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/base/expects.hpp"
#include "runtime/comm/mpi/processes.hpp"
#include "runtime/comm/thread_communicator.hpp"
#include "runtime/measure/machine.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {
namespace {

constexpr const char* kTimed[] = {"all_reduce", "all_gather", "reduce_scatter", "send_recv"};

Group all_of(int ranks) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return {"measured", std::move(members)};
}

void call(Communicator& end, std::string_view what, std::vector<float>& data) {
  const int own = end.rank();
  const auto all = static_cast<std::int64_t>(data.size());
  const std::int64_t part = all / end.size();
  if (what == "all_reduce") {
    end.all_reduce(data.data(), all, Element::f32, Reduction::max);
  } else if (what == "all_gather") {
    end.all_gather(data.data() + own * part, data.data(), part, Element::f32);
  } else if (what == "reduce_scatter") {
    end.reduce_scatter(data.data(), data.data() + own * part, part, Element::f32);
  } else if (own == 0) {
    end.send(data.data(), all, Element::f32, 1);
  } else if (own == 1) {
    end.receive(data.data(), all, Element::f32, 0);
  }
}

}  // namespace

std::vector<Measurement> time_collectives(Communicator& end, int ranks, int cores) {
  constexpr std::int64_t kLarge = 1 << 20;
  std::vector<Measurement> out;
  for (const char* what : kTimed) {
    for (const std::int64_t bytes : {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23}) {
      std::vector<float> data(static_cast<std::size_t>(bytes / 4 / ranks * ranks), 1.0F);
      const int repeats = bytes > kLarge ? 20 : 200;
      std::vector<Seconds> times;
      for (int i = 0; i < repeats; ++i) {
        end.barrier();
        const Seconds before = steady_now();
        call(end, what, data);
        times.push_back(steady_now() - before);
      }
      out.push_back({what, ranks, cores, {bytes}, undisturbed(std::move(times))});
    }
  }
  return out;
}

std::vector<Measurement> measure_collectives_of_threads(int ranks, int cores) {
  RunThreads run_threads;
  const auto ends = thread_communicators(run_threads, all_of(ranks));
  std::vector<Measurement> out;
  for (int rank = 0; rank < ranks; ++rank) {
    run_threads.add("rank " + std::to_string(rank), [&, rank] {
      std::vector<Measurement> own =
          time_collectives(*ends[static_cast<std::size_t>(rank)], ranks, cores);
      if (rank == 0) out = std::move(own);
    });
  }
  run_threads.run();
  return out;
}

std::vector<Measurement> measure_collectives_of_processes(int ranks, int cores) {
  ParallelPlan plan;
  plan.dp = ranks;
  ModelSpec model;
  model.kv_heads = 1;
  constexpr Seconds kDeadline{60};
  RunThreads run_threads(kDeadline);
  const Result<std::unique_ptr<World>> world = mpi::world(run_threads, plan, model);
  EXPECTS(world.ok(), "as many processes as ranks");
  const int rank = (*world)->local_ranks().front();
  std::vector<Measurement> out;
  run_threads.add("rank " + std::to_string(rank), [&] {
    out = time_collectives((*world)->at(rank, GroupRole::dp_compute), ranks, cores);
  });
  run_threads.run();
  return out;
}

}  // namespace echelon
