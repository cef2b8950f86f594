// The program that tests/runtime/comm/mpi/mpi_test.cpp starts with mpirun: peers WHAT [TOKEN]. Exit
// codes: 0; 1 wrong result; those of the kinds of RunFailure. The token identifies our processes.
#include <csignal>
#include <iostream>
#include <string>
#include <thread>

#include "runtime/comm/mpi/processes.hpp"
#include "tests/runtime/comm/peers.hpp"

namespace echelon {
namespace {

/// Runs `work` in a role as a run thread.
template <class Work>
void run_role(World& world, RunThreads& run_threads, GroupRole role, Work&& work) {
  const int rank = world.local_ranks().front();
  run_threads.add("rank " + std::to_string(rank) + " " + std::string(name_of(role)),
                  [&world, rank, role, work] { work(world.at(rank, role)); });
}

/// Three queues at once between processes; then the same between threads.
void operations(int processes, int rank) {
  const ParallelPlan plan = peers_plan(processes);
  const std::vector<GroupRole> roles{GroupRole::norm, GroupRole::dp_reduce, GroupRole::forward};
  std::vector<Raw> by_processes(roles.size());
  {
    RunThreads run_threads(Seconds{120});
    const auto world = mpi::world(run_threads, plan, peers_model()).value();
    for (std::size_t i = 0; i < roles.size(); ++i) {
      run_role(*world, run_threads, roles[i],
               [&, i](Communicator& comm) { by_processes[i] = all_on(comm, roles[i], i); });
    }
    run_threads.run();
  }
  const std::vector<std::vector<Raw>> by_threads = by_threads_on(plan, roles);
  std::string text = "rank " + std::to_string(rank) + ":";
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const Raw& expected = by_threads[i][static_cast<std::size_t>(rank)];
    if (expected != by_processes[i]) {
      throw RunFailure(RunFailure::Kind::defect,
                       "bits differ on " + std::string(name_of(roles[i])));
    }
    text += " " + std::to_string(expected.size());
  }
  std::cout << text + " bytes are the same\n" << std::flush;
}

void failing(const std::string& what, int processes, int rank) {
  RunThreads run_threads(what == "absent" ? std::optional<Seconds>(Seconds{0.5}) : std::nullopt);
  const auto world = mpi::world(run_threads, peers_plan(processes), peers_model()).value();
  run_role(*world, run_threads, GroupRole::norm, [&](Communicator& comm) {
    if (fail_as(what, comm, Seconds{100}) || what != "die") return;
    comm.barrier();
    if (rank == processes - 1) std::raise(SIGKILL);
    reduce_for_ever(comm);
  });
  run_threads.run();
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
      RunThreads run_threads;
      ParallelPlan plan = peers_plan(place->processes);
      plan.dp *= 2;
      std::cout << mpi::world(run_threads, plan, peers_model()).error().message() + "\n"
                << std::flush;
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
