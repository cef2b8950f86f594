// What each process does that tests/runtime/mpi_test.cpp starts with mpirun: peers WHAT [TOKEN].
// Exit codes: 0; 1 wrong result; those of the kinds of RunFailure. The token marks our processes.
#include <csignal>
#include <iostream>
#include <string>
#include <thread>

#include "runtime/mpi/processes.hpp"
#include "runtime/thread_communicator.hpp"
#include "tests/runtime/collectives.hpp"

namespace echelon {
namespace {

/// 56 f32 fit the first message, 57 do not; the last is more than a slice of four processes.
constexpr std::int64_t kCounts[] = {0, 1, 7, 56, 57, 4099, 270'001};

ModelSpec peers_model() {
  ModelSpec model;
  model.kv_heads = 1;
  model.tied_embeddings = true;
  return model;
}

ParallelPlan peers_plan(int processes) {
  ParallelPlan plan;
  plan.tp = processes % 2 == 0 ? 2 : 1;
  plan.pp = processes % 4 == 0 ? 2 : 1;
  plan.dp = processes / plan.tp / plan.pp;
  plan.shard_group = plan.dp;
  return plan;
}

/// Runs `work` on a line as a member of a crew.
template <class Work>
void run_line(World& world, Crew& crew, Line line, Work&& work) {
  const int rank = world.local_ranks().front();
  crew.add("rank " + std::to_string(rank) + " " + std::string(name_of(line)),
           [&world, rank, line, work] { work(world.at(rank, line)); });
}

/// All that one process holds after all operations on a line.
Raw all_on(Communicator& line, std::uint64_t seed) {
  Raw all;
  for (const Element element : kElements) {
    for (const std::int64_t count : kCounts) {
      if (count > 10'000 && element != Element::f32) continue;
      const Raw some =
          all_operations(line, count, element, seed + static_cast<std::uint64_t>(count));
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

/// Three queues at once between processes; then the same between threads.
void operations(int processes, int rank) {
  const ParallelPlan plan = peers_plan(processes);
  const std::vector<Line> lines{Line::norm, Line::tp, Line::forward};
  std::vector<Raw> by_processes(lines.size());
  {
    Crew crew(Seconds{120});
    const auto world = mpi::world(crew, plan, peers_model()).value();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      run_line(*world, crew, lines[i],
               [&, i](Communicator& line) { by_processes[i] = all_on(line, i); });
    }
    crew.run();
  }
  Crew crew(Seconds{120});
  const auto world = thread_world(crew, plan, peers_model());
  std::vector<Raw> by_threads(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (const int each : world->local_ranks()) {
      crew.add("thread", [&, i, each] {
        Raw all = all_on(world->at(each, lines[i]), i);
        if (each == rank) by_threads[i] = std::move(all);
      });
    }
  }
  crew.run();
  std::string text = "rank " + std::to_string(rank) + ":";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (by_threads[i] != by_processes[i]) {
      throw RunFailure(RunFailure::Kind::defect,
                       "bits differ on " + std::string(name_of(lines[i])));
    }
    text += " " + std::to_string(by_threads[i].size());
  }
  std::cout << text + " bytes are the same\n" << std::flush;
}

/// For ever, so that only a failure ends it.
[[noreturn]] void reduce_for_ever(Communicator& line) {
  for (;;) {
    double one = 1;
    line.all_reduce(&one, 1, Element::f64, Reduction::sum);
    if (one != line.size()) throw RunFailure(RunFailure::Kind::defect, "wrong sum");
  }
}

void failing(const std::string& what, int processes, int rank) {
  Crew crew(what == "absent" ? std::optional<Seconds>(Seconds{0.5}) : std::nullopt);
  const auto world = mpi::world(crew, peers_plan(processes), peers_model()).value();
  run_line(*world, crew, Line::norm, [&](Communicator& line) {
    std::vector<float> data(1'000'000, 1.0F);
    const bool odd_one = rank == processes - 1;
    const auto count = static_cast<std::int64_t>(data.size());
    if (what == "disagree") {
      odd_one ? line.all_gather(data.data(), data.data(), 32, Element::f32)
              : line.all_reduce(data.data(), 64, Element::f32, Reduction::sum);
    } else if (what == "message") {
      if (rank == 0) line.send(data.data(), 100, Element::f32, 1);
      if (rank == 1) line.receive(data.data(), 99, Element::f32, 0);
      line.barrier();
    } else if (what == "absent") {
      if (odd_one) std::this_thread::sleep_for(std::chrono::seconds(100));
      line.all_reduce(data.data(), count, Element::f32, Reduction::sum);
    } else if (what == "throw") {
      if (odd_one) throw RunFailure(RunFailure::Kind::diverged, "loss is NaN");
      reduce_for_ever(line);
    } else if (what == "die") {
      line.barrier();
      if (odd_one) std::raise(SIGKILL);
      reduce_for_ever(line);
    }
  });
  crew.run();
}

}  // namespace
}  // namespace echelon

int main(int count, char** words) {
  using namespace echelon;
  const std::string what = count > 1 ? words[1] : "";
  const auto place = mpi::start();
  if (!place) {
    std::cerr << place.error().message() + "\n";
    return 3;
  }
  try {
    if (what == "operations") {
      operations(place->processes, place->rank);
    } else if (what == "size") {
      Crew crew;
      ParallelPlan plan = peers_plan(place->processes);
      plan.dp *= 2;
      std::cout << mpi::world(crew, plan, peers_model()).error().message() + "\n" << std::flush;
    } else {
      failing(what, place->processes, place->rank);
    }
    mpi::finish(Seconds{60});
    return 0;
  } catch (const RunFailure& failure) {
    std::cerr << "rank " + std::to_string(place->rank) + ": exit " +
                     std::to_string(exit_code_of(failure.kind())) + ": " + failure.what() + "\n"
              << std::flush;
    mpi::abort(exit_code_of(failure.kind()));
  }
}
