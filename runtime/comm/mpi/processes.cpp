#include "runtime/comm/mpi/processes.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/base/expects.hpp"
#include "runtime/comm/mpi/mpi_communicator.hpp"
#include "runtime/comm/mpi/neighbours.hpp"
#include "runtime/comm/mpi/status_link.hpp"
#include "runtime/comm/solo_communicator.hpp"

namespace echelon::mpi {
namespace {

constexpr const char* kStartHint = "start one process per rank: mpirun -n RANKS plan-run ...";

Place place_in_world() {
  Place place;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &place.rank), "start");
  check(MPI_Comm_size(MPI_COMM_WORLD, &place.processes), "start");
  return place;
}

/// The other processes of this machine.
std::vector<Neighbour> neighbours_of(const Place& place) {
  MPI_Comm machine = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, place.rank, MPI_INFO_NULL,
                            &machine),
        "start");
  int count = 0;
  check(MPI_Comm_size(machine, &count), "start");
  const Neighbour own{place.rank, ::getpid()};
  std::vector<Neighbour> all(static_cast<std::size_t>(count));
  check(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, machine),
        "start");
  check(MPI_Comm_free(&machine), "start");
  std::erase_if(all, [&](const Neighbour& each) { return each.rank == place.rank; });
  return all;
}

class MpiWorld final : public World {
 public:
  MpiWorld(RunThreads& run_threads, const ParallelPlan& plan, const ModelSpec& model)
      : place_(place_in_world()),
        local_{place_.rank},
        neighbours_(neighbours_of(place_)),
        watch_(run_threads, neighbours_),
        status_link_(run_threads) {
    for (int role = 0; role < kGroupRoles; ++role) {
      ends_[static_cast<std::size_t>(role)] =
          role_of(run_threads, groups_of(static_cast<GroupRole>(role), plan, model));
    }
  }
  [[nodiscard]] int ranks() const override { return place_.processes; }
  [[nodiscard]] int ranks_on_this_machine() const override {
    return static_cast<int>(neighbours_.size()) + 1;
  }
  [[nodiscard]] const std::vector<int>& local_ranks() const override { return local_; }
  [[nodiscard]] Communicator& at(int rank, GroupRole role) override {
    EXPECTS(rank == place_.rank, "a process has the communicators of its own rank");
    return *ends_[static_cast<std::size_t>(role)];
  }
  [[nodiscard]] StatusLink* status_link() override { return &status_link_; }

 private:
  /// All processes split all roles in the same order.
  [[nodiscard]] std::unique_ptr<Communicator> role_of(RunThreads& run_threads,
                                                      const std::vector<Group>& groups) const {
    for (std::size_t number = 0; number < groups.size(); ++number) {
      const std::vector<int>& ranks = groups[number].ranks;
      const auto own = std::find(ranks.begin(), ranks.end(), place_.rank);
      if (own == ranks.end()) continue;
      const bool alone = ranks.size() == 1;
      MPI_Comm comm = MPI_COMM_NULL;
      check(MPI_Comm_split(MPI_COMM_WORLD, alone ? MPI_UNDEFINED : static_cast<int>(number),
                           static_cast<int>(own - ranks.begin()), &comm),
            describe(groups[number]));
      return alone ? solo_communicator() : communicator(run_threads, groups[number], comm);
    }
    EXPECTS(false, "every rank is in a group of every role");
    return nullptr;
  }

  Place place_;
  std::vector<int> local_;
  std::vector<Neighbour> neighbours_;
  Watch watch_;
  MpiStatusLink status_link_;
  std::array<std::unique_ptr<Communicator>, kGroupRoles> ends_;
};

}  // namespace

Result<Place> start() {
  hold_sigterm();
  int level = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
    return environment_error("mpi", "MPI does not start", kStartHint);
  }
  if (level < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    return environment_error("mpi", "this MPI library lacks MPI_THREAD_MULTIPLE",
                             "every queue of a rank is a thread: use an MPI built with "
                             "MPI_THREAD_MULTIPLE");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return place_in_world();
}

Result<std::unique_ptr<World>> world(RunThreads& run_threads, const ParallelPlan& plan,
                                     const ModelSpec& model) {
  const Place place = place_in_world();
  if (place.processes != plan.gpus()) {
    return input_error("mpi", std::to_string(place.processes) + " processes",
                       std::to_string(plan.gpus()) + ", one per rank of the plan", kStartHint);
  }
  return std::unique_ptr<World>(std::make_unique<MpiWorld>(run_threads, plan, model));
}

void finish(Seconds limit) {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(limit.in(kSecond));
  MPI_Request all = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(MPI_COMM_WORLD, &all), "the end");
  for (int met = 0; met == 0;) {
    check(MPI_Test(&all, &met, MPI_STATUS_IGNORE), "the end");
    if (met != 0) break;
    if (std::chrono::steady_clock::now() > until) {
      throw RunFailure(RunFailure::Kind::hang, "not all processes reached the end of the run");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  MPI_Finalize();
}

void abort(int exit_code) {
  ::alarm(5);  // should MPI not come back: its default is to end the process
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace echelon::mpi
