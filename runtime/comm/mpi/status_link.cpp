#include "runtime/comm/mpi/status_link.hpp"

#include <new>
#include <utility>

namespace echelon::mpi {
namespace {

constexpr const char* kWhere = "signs of life";

bool is_over(MPI_Request& request) {
  int over = 0;
  check(MPI_Test(&request, &over, MPI_STATUS_IGNORE), kWhere);
  return over != 0;
}

}  // namespace

MpiStatusLink::MpiStatusLink(RunThreads& run_threads) : run_threads_(run_threads) {
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), kWhere);
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), kWhere);
}

/// Waits for nobody: the end of MPI frees the communicator and what is on its way.
MpiStatusLink::~MpiStatusLink() {
  for (int from = 0; !run_threads_.stopping() && receive(from);) {
  }
  // MPI may still read messages that were not taken.
  new (std::nothrow) std::map<int, std::deque<UnderWay>>(std::move(under_way_));
}

void MpiStatusLink::send(int to, const StatusMessage& message) {
  try {
    std::deque<UnderWay>& messages = under_way_[to];
    while (!messages.empty() && is_over(messages.front().request)) messages.pop_front();
    if (messages.size() >= kMostUnderWay) return;
    UnderWay& added = messages.emplace_back();
    added.message = message;
    check(MPI_Isend(&added.message, sizeof added.message, MPI_BYTE, to, 0, comm_, &added.request),
          kWhere);
  } catch (const RunFailure& failure) {
    run_threads_.stop(failure);
  }
}

std::optional<StatusMessage> MpiStatusLink::receive(int& from) {
  try {
    int there = 0;
    MPI_Status status{};
    check(MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_, &there, &status), kWhere);
    if (there == 0) return std::nullopt;
    StatusMessage message;
    check(MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, 0, comm_,
                   MPI_STATUS_IGNORE),
          kWhere);
    from = status.MPI_SOURCE;
    return message;
  } catch (const RunFailure& failure) {
    run_threads_.stop(failure);
    return std::nullopt;
  }
}

}  // namespace echelon::mpi
