// The life of NCCL's communicators.
#include "tests/runtime/cuda/standins/communicators.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace echelon::standins {
namespace {

struct Cliques {
  std::vector<std::unique_ptr<Clique>> all;
  std::vector<std::shared_ptr<ncclComm>> members;
  std::string last_error;
};
Cliques& cliques() {
  static Cliques one;
  return one;
}

Seat& seat_of(const ncclComm& comm, int rank) { return (*comm.clique)->seats[rank]; }

/// Every member needs its own device, or no communicator is created. Under the clique's lock.
std::string duplicates(const ncclComm& comm) {
  for (int one = 0; one < comm.size; ++one) {
    for (int other = 0; other < one; ++other) {
      const std::string bus = seat_of(comm, one).bus;
      if (bus != seat_of(comm, other).bus) continue;
      return "Duplicate GPU detected : rank " + std::to_string(other) + " and rank " +
             std::to_string(one) + " both on CUDA device " + bus;
    }
  }
  return "";
}

std::string who_is_missing(const ncclComm& comm) {
  const Clique::Lock lock(*comm.clique);
  std::string missing;
  for (int rank = 0; rank < comm.size; ++rank) {
    if (seat_of(comm, rank).process != 0) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  return missing;
}

/// Publishes the progress of this process, and reads that of the others.
std::uint64_t exchange(std::uint64_t own) {
  std::uint64_t others = 0;
  for (const auto& clique : cliques().all) {
    for (Seat& seat : (*clique)->seats) {
      if (seat.process == getpid()) {
        seat.changes = own;
      } else {
        others += seat.changes;
      }
    }
  }
  return others;
}

/// ncclInProgress until all members have joined.
ncclResult_t joining_of(ncclComm& comm) {
  if (comm.joining != ncclInProgress) return comm.joining;
  const Clique::Lock lock(*comm.clique);
  for (int rank = 0; rank < comm.size; ++rank) {
    if (seat_of(comm, rank).process == 0) return ncclInProgress;
  }
  const std::string wrong = duplicates(comm);
  comm.joining = wrong.empty() ? ncclSuccess : refused(ncclInvalidUsage, wrong);
  if (comm.clique->is_elsewhere()) machine().run_by_itself(exchange);
  return comm.joining;
}

/// ncclSuccess as long as this member and the others are alive.
ncclResult_t error_of(const ncclComm& comm) {
  const Clique::Lock lock(*comm.clique);
  if (seat_of(comm, comm.rank).dead) return ncclSystemError;
  for (int rank = 0; rank < comm.size; ++rank) {
    const std::string end = rank == comm.rank ? "" : end_of(comm, rank);
    if (!end.empty() && (end != kKilled || machine().settings().over_network)) {
      return ncclRemoteError;
    }
  }
  return ncclSuccess;
}

bool idle(const ncclComm& comm) {
  return comm.aborted || (comm.resources->launches.empty() && comm.deferred.empty());
}

}  // namespace

Clique* clique_of(const ncclUniqueId& id) {
  auto& all = cliques().all;
  for (const auto& clique : all) {
    if (clique->is(id)) return clique.get();
  }
  std::unique_ptr<Clique> found = Clique::found(id);
  if (!found) return nullptr;
  return all.emplace_back(std::move(found)).get();
}

bool new_clique(ncclUniqueId& id) {
  std::unique_ptr<Clique> made = Clique::made(id);
  if (!made) return false;
  cliques().all.push_back(std::move(made));
  return true;
}

ncclComm_t joined(Clique& clique, int nranks, int rank, int device, const ncclConfig_t& config) {
  {
    const Clique::Lock lock(clique);
    if (clique->size == 0) clique->size = nranks;
    if (clique->size != nranks) {
      machine().complain("a communicator of " + std::to_string(clique->size) + " ranks, and of " +
                         std::to_string(nranks) + " for rank " + std::to_string(rank));
    }
    Seat& seat = clique->seats[rank];
    if (seat.process != 0) {
      machine().complain("two members of a communicator are rank " + std::to_string(rank));
    }
    cudaDeviceGetPCIBusId(seat.bus, sizeof seat.bus, device);
    seat.process = getpid();
  }
  // Streams may still hold calls of a destroyed member: it is kept until the machine is replaced.
  const auto& made = cliques().members.emplace_back(std::make_shared<ncclComm>());
  ncclComm_t const comm = machine().own(made, kCommunicator);
  comm->clique = &clique;
  comm->rank = rank;
  comm->size = nranks;
  comm->device = device;
  comm->blocking = config.blocking != 0;
  comm->shares = config.splitShare == 1;
  if (config.maxCTAs != NCCL_CONFIG_UNDEF_INT) comm->max_ctas = config.maxCTAs;
  if (config.commName != nullptr) comm->name = config.commName;
  machine().changed();
  return comm;
}

std::string end_of(const ncclComm& comm, int rank) {
  const Seat& seat = seat_of(comm, rank);
  if (seat.dead) return "died";
  if (seat.aborted) return "aborted";
  const bool gone = seat.process != 0 && kill(seat.process, 0) != 0 && errno == ESRCH;
  return gone && !seat.left ? kKilled : "";
}

std::string said_of(const ncclComm& comm, int rank) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(comm.size) +
         (comm.name.empty() ? "" : " of communicator " + comm.name);
}

std::string said(const ncclComm& comm) { return said_of(comm, comm.rank); }

ncclResult_t refused(ncclResult_t result, const std::string& why) {
  cliques().last_error = why;
  return result;
}

void check(ncclComm_t comm) {
  if (!machine().owns(comm, kCommunicator)) {
    machine().complain("a communicator is used that is not there, or no longer");
  }
}

ncclResult_t usable(ncclComm& comm) {
  const ncclResult_t joining = joining_of(comm);
  if (joining == ncclInProgress || !comm.deferred.empty() || comm.splitting) {
    return refused(
        ncclInvalidArgument,
        "Attempt to use communicator before the previous operation returned ncclSuccess");
  }
  if (joining != ncclSuccess) return joining;
  const ncclResult_t error = error_of(comm);
  if (error == ncclSystemError) return refused(error, said(comm) + " died");
  if (error != ncclSuccess) return refused(error, "another rank is gone");
  if (comm.finalized) return refused(ncclInvalidArgument, "a communicator is used after its end");
  return ncclSuccess;
}

ncclResult_t wait_for_all(Machine::Lock& lock, const std::vector<ncclComm_t>& comms) {
  ncclResult_t result = ncclSuccess;
  for (ncclComm_t comm : comms) {
    const auto over = [comm] { return joining_of(*comm) != ncclInProgress; };
    const auto who = [comm] {
      return "ncclCommInitRank of " + said(*comm) + ", without rank " + who_is_missing(*comm) + ",";
    };
    if (machine().wait(lock, over, who) != cudaSuccess) return ncclUnhandledCudaError;
    if (result == ncclSuccess) result = comm->joining;
  }
  return result;
}

void flush(ncclComm& comm) {
  for (const Deferred& one : comm.deferred) machine().enqueue(one.stream, one.operation);
  comm.deferred.clear();
}

void forget_communicators() { cliques() = {}; }

}  // namespace echelon::standins

using namespace echelon::standins;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) {
  const Machine::Lock lock;
  thread_local std::string text;
  text = cliques().last_error;
  return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  const Machine::Lock lock;
  ++machine().of_process.nccl_ids;
  return new_clique(*uniqueId) ? ncclSuccess
                               : refused(ncclSystemError, "no shared memory for a communicator");
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return ncclCommInitRankConfig(comm, nranks, commId, rank, &config);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  Machine::Lock lock;
  constexpr ncclConfig_t kFresh = NCCL_CONFIG_INITIALIZER;
  *comm = nullptr;
  if (nranks < 1 || rank < 0 || rank >= nranks || config == nullptr ||
      config->size != kFresh.size || config->magic != kFresh.magic) {
    return refused(ncclInvalidArgument, "ranks or configuration of a communicator are not valid");
  }
  if (nranks > kMaxRanks) {
    return refused(ncclInvalidArgument, "more ranks than are emulated");
  }
  Clique* const clique = clique_of(commId);
  if (clique == nullptr) {
    return refused(ncclInvalidArgument,
                   "not an identifier of ncclGetUniqueId, or of a process that is gone");
  }
  *comm = joined(*clique, nranks, rank, this_thread().device, *config);
  if (!(*comm)->blocking) return ncclInProgress;
  if (joins_in_group(*comm)) return ncclSuccess;
  const ncclResult_t result = wait_for_all(lock, {*comm});
  if (result != ncclSuccess) {
    if (machine().owns(*comm, kCommunicator)) machine().disown(*comm, kCommunicator);
    *comm = nullptr;
  }
  return result;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  Machine::Lock lock;
  check(comm);
  if (const ncclResult_t result = usable(*comm); result != ncclSuccess) return result;
  comm->finalized = true;
  if (!comm->blocking) return ncclInProgress;
  const auto who = [comm] { return "ncclCommFinalize of " + said(*comm); };
  const cudaError_t waited = machine().wait(
      lock, [comm] { return idle(*comm); }, who);
  return waited == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Machine::Lock lock;
  if (comm == nullptr) return ncclSuccess;
  if (!machine().disown(comm, kCommunicator)) return ncclInvalidArgument;
  flush(*comm);
  {
    const Clique::Lock clique(*comm->clique);
    seat_of(*comm, comm->rank).left = true;
  }
  const auto who = [comm] { return "ncclCommDestroy of " + said(*comm); };
  const cudaError_t waited = machine().wait(
      lock, [comm] { return idle(*comm); }, who, true);
  return waited == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Machine::Lock lock;
  if (comm == nullptr) return ncclSuccess;
  if (!machine().disown(comm, kCommunicator)) return ncclInvalidArgument;
  comm->aborted = true;
  if (comm->joining == ncclInProgress) comm->joining = ncclInvalidUsage;
  comm->deferred.clear();
  comm->splitting.reset();
  {
    const Clique::Lock clique(*comm->clique);
    seat_of(*comm, comm->rank).aborted = true;
  }
  machine().changed();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  Machine::Lock lock;
  check(comm);
  *asyncError = ncclSuccess;
  if (machine().fault()) {
    *asyncError = ncclUnhandledCudaError;
  } else if (const ncclResult_t error = error_of(*comm); error != ncclSuccess) {
    *asyncError = error;
  } else if (const ncclResult_t joining = joining_of(*comm); joining != ncclSuccess) {
    *asyncError = joining;
  } else if (const ncclResult_t splitting = split_of(*comm); splitting != ncclSuccess) {
    *asyncError = splitting;
  } else if (!comm->deferred.empty()) {
    if (comm->deferred.front().polls-- > 0) {
      *asyncError = ncclInProgress;
    } else {
      flush(*comm);
    }
  } else if (comm->finalized) {
    machine().run_some(lock);
    if (!idle(*comm)) *asyncError = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const Machine::Lock lock;
  check(comm);
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const Machine::Lock lock;
  check(comm);
  *rank = comm->rank;
  return ncclSuccess;
}
