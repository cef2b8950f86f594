// What each process does that tests/runtime/mpi_test.cpp starts with mpirun: peers WHAT [TOKEN].
// Exit codes: 0; 1 wrong result; those of the kinds of RunFailure. The token marks our processes.
#include <csignal>
#include <iostream>
#include <string>
#include <thread>

#include "runtime/mpi/processes.hpp"
#include "tests/runtime/peers.hpp"

namespace echelon {
namespace {

/// Runs `work` on a line as a member of a crew.
template <class Work>
void run_line(World& world, Crew& crew, Line line, Work&& work) {
  const int rank = world.local_ranks().front();
  crew.add("rank " + std::to_string(rank) + " " + std::string(name_of(line)),
           [&world, rank, line, work] { work(world.at(rank, line)); });
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
  const std::vector<std::vector<Raw>> by_threads = by_threads_on(plan, lines);
  std::string text = "rank " + std::to_string(rank) + ":";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Raw& expected = by_threads[i][static_cast<std::size_t>(rank)];
    if (expected != by_processes[i]) {
      throw RunFailure(RunFailure::Kind::defect,
                       "bits differ on " + std::string(name_of(lines[i])));
    }
    text += " " + std::to_string(expected.size());
  }
  std::cout << text + " bytes are the same\n" << std::flush;
}

void failing(const std::string& what, int processes, int rank) {
  Crew crew(what == "absent" ? std::optional<Seconds>(Seconds{0.5}) : std::nullopt);
  const auto world = mpi::world(crew, peers_plan(processes), peers_model()).value();
  run_line(*world, crew, Line::norm, [&](Communicator& line) {
    if (fail_as(what, line, Seconds{100}) || what != "die") return;
    line.barrier();
    if (rank == processes - 1) std::raise(SIGKILL);
    reduce_for_ever(line);
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
