// The life of NCCL's communicators.
#include "tests/runtime/cuda/standins/communicators.hpp"

#include <algorithm>
#include <cstring>

namespace echelon::standins {
namespace {

struct Cliques {
  std::vector<std::unique_ptr<Clique>> all;  // an identifier is an index
  std::vector<std::shared_ptr<ncclComm>> members;
  std::string last_error;
};
Cliques& cliques() {
  static Cliques one;
  return one;
}

/// What is in a ncclUniqueId.
struct Identifier {
  std::uint64_t machine;
  std::uint64_t index;
};

Clique* clique_of(const ncclUniqueId& id) {
  Identifier identifier{};
  std::memcpy(&identifier, id.internal, sizeof identifier);
  if (identifier.machine != machine().number() || identifier.index >= cliques().all.size()) {
    return nullptr;
  }
  return cliques().all[identifier.index].get();
}

/// Everyone is there: members are on devices of their own, or nobody gets a communicator.
void complete(Clique& clique) {
  std::string wrong;
  for (int one = 0; one < clique.size && wrong.empty(); ++one) {
    for (int other = 0; other < one; ++other) {
      if (clique.members[static_cast<std::size_t>(one)]->device !=
          clique.members[static_cast<std::size_t>(other)]->device) {
        continue;
      }
      char bus[32];
      cudaDeviceGetPCIBusId(bus, sizeof bus, clique.members[static_cast<std::size_t>(one)]->device);
      wrong = "Duplicate GPU detected : rank " + std::to_string(other) + " and rank " +
              std::to_string(one) + " both on CUDA device " + bus;
    }
  }
  for (ncclComm_t member : clique.members) {
    member->joining = wrong.empty() ? ncclSuccess : refused(ncclInvalidUsage, wrong);
  }
}

std::string who_is_missing(const ncclComm& comm) {
  std::string missing;
  for (int rank = 0; rank < comm.clique->size; ++rank) {
    if (comm.clique->members[static_cast<std::size_t>(rank)] != nullptr) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  return missing;
}

ncclComm_t joined(Clique& clique, int rank, const ncclConfig_t& config) {
  // Streams may still hold calls of a member that is gone: it stays until the machine is another.
  const auto& made = cliques().members.emplace_back(std::make_shared<ncclComm>());
  ncclComm_t const comm = machine().own(made, kCommunicator);
  comm->clique = &clique;
  comm->rank = rank;
  comm->device = this_thread().device;
  comm->blocking = config.blocking != 0;
  if (config.commName != nullptr) comm->name = config.commName;
  clique.members[static_cast<std::size_t>(rank)] = comm;
  if (++clique.joined == clique.size) complete(clique);
  machine().changed();
  return comm;
}

void tell_others(const ncclComm& comm) {
  for (ncclComm_t member : comm.clique->members) {
    if (member != nullptr && member != &comm && member->error == ncclSuccess) {
      member->error = ncclRemoteError;
    }
  }
}

bool idle(const ncclComm& comm) {
  return comm.aborted || (comm.launches.empty() && comm.deferred.empty());
}

}  // namespace

std::string said(const ncclComm& comm) {
  return "rank " + std::to_string(comm.rank) + " of " + std::to_string(comm.clique->size) +
         (comm.name.empty() ? "" : " of communicator " + comm.name);
}

ncclResult_t refused(ncclResult_t result, const std::string& why) {
  cliques().last_error = why;
  return result;
}

void check(ncclComm_t comm) {
  if (!machine().owns(comm, kCommunicator)) {
    machine().complain("a communicator is used that is not there, or no longer");
  }
}

ncclResult_t usable(const ncclComm& comm) {
  if (comm.joining == ncclInProgress || !comm.deferred.empty()) {
    return refused(
        ncclInvalidArgument,
        "Attempt to use communicator before the previous operation returned ncclSuccess");
  }
  if (comm.joining != ncclSuccess) return comm.joining;
  if (comm.dead) return refused(ncclSystemError, said(comm) + " died");
  if (comm.error != ncclSuccess) return refused(comm.error, "another rank is gone");
  if (comm.finalized) return refused(ncclInvalidArgument, "a communicator is used after its end");
  return ncclSuccess;
}

ncclResult_t wait_for_all(Machine::Lock& lock, const std::vector<ncclComm_t>& comms) {
  ncclResult_t result = ncclSuccess;
  for (ncclComm_t comm : comms) {
    const auto over = [comm] { return comm->joining != ncclInProgress; };
    const auto who = [comm] {
      return "ncclCommInitRank of " + said(*comm) + ", without rank " + who_is_missing(*comm) + ",";
    };
    if (machine().wait(lock, over, who) != cudaSuccess) return ncclUnhandledCudaError;
    if (result == ncclSuccess) result = comm->joining;
  }
  return result;
}

void flush(ncclComm& comm) {
  for (const Deferred& one : comm.deferred) machine().put(one.stream, one.operation);
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
  const Identifier identifier{machine().number(), cliques().all.size()};
  cliques().all.push_back(std::make_unique<Clique>());
  *uniqueId = {};
  std::memcpy(uniqueId->internal, &identifier, sizeof identifier);
  return ncclSuccess;
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
  Clique* const clique = clique_of(commId);
  if (clique == nullptr)
    return refused(ncclInvalidArgument, "not an identifier of ncclGetUniqueId");
  if (clique->size == 0) {
    clique->size = nranks;
    clique->members.resize(static_cast<std::size_t>(nranks));
    clique->collectives.resize(static_cast<std::size_t>(nranks));
  }
  if (clique->size != nranks) {
    machine().complain("a communicator of " + std::to_string(clique->size) + " ranks, and of " +
                       std::to_string(nranks) + " for rank " + std::to_string(rank));
  }
  if (clique->members[static_cast<std::size_t>(rank)] != nullptr) {
    machine().complain("two members of a communicator are rank " + std::to_string(rank));
  }
  *comm = joined(*clique, rank, *config);
  if (!(*comm)->blocking) return ncclInProgress;
  if (joins_in_group(*comm)) return ncclSuccess;
  const ncclResult_t result = wait_for_all(lock, {*comm});
  if (result != ncclSuccess) {
    machine().disown(*comm, kCommunicator);
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
  tell_others(*comm);
  machine().changed();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  Machine::Lock lock;
  check(comm);
  *asyncError = ncclSuccess;
  if (machine().fault()) {
    *asyncError = ncclUnhandledCudaError;
  } else if (comm->dead) {
    *asyncError = ncclSystemError;
  } else if (comm->error != ncclSuccess) {
    *asyncError = comm->error;
  } else if (comm->joining != ncclSuccess) {
    *asyncError = comm->joining;
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
  *count = comm->clique->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const Machine::Lock lock;
  check(comm);
  *rank = comm->rank;
  return ncclSuccess;
}
