// Communicators that are split off others.
#include <algorithm>
#include <utility>
#include <vector>

#include "tests/runtime/cuda/standins/communicators.hpp"

namespace echelon::standins {
namespace {

/// The members of the new communicator, in its order: numbers in the old one. None: not all of the
/// old one have called. Under the clique's lock.
std::vector<int> members_of(const ncclComm& comm, const Split& split, int color) {
  std::vector<std::pair<int, int>> by_key;
  for (int rank = 0; rank < comm.size; ++rank) {
    if (!split.called[rank]) return {};
    if (split.color[rank] == color) by_key.emplace_back(split.key[rank], rank);
  }
  std::sort(by_key.begin(), by_key.end());
  std::vector<int> members;
  for (const auto& [key, rank] : by_key) members.push_back(rank);
  return members;
}

/// The identifier of the new communicator, made by its first member. False: not yet.
bool identified(const ncclComm& comm, Split& split, int first, ncclUniqueId& id) {
  if (!split.made[first] && comm.rank == first) split.made[first] = new_clique(split.id[first]);
  id = split.id[first];
  return split.made[first];
}

}  // namespace

ncclResult_t split_of(ncclComm& comm) {
  if (!comm.splitting) return ncclSuccess;
  const Splitting splitting = *comm.splitting;
  std::vector<int> members;
  ncclUniqueId id{};
  {
    const Clique::Lock lock(*comm.clique);
    Split& split = (*comm.clique)->splits[splitting.number];
    members = members_of(comm, split, splitting.color);
    if (members.empty()) return ncclInProgress;
    if (splitting.color != NCCL_SPLIT_NOCOLOR && !identified(comm, split, members.front(), id))
      return ncclInProgress;
  }
  if (splitting.color != NCCL_SPLIT_NOCOLOR) {
    Clique* const clique = clique_of(id);
    if (clique == nullptr) return refused(ncclSystemError, "a member of the split is gone");
    const auto place = std::find(members.begin(), members.end(), comm.rank) - members.begin();
    ncclComm_t const made = joined(*clique, static_cast<int>(members.size()),
                                   static_cast<int>(place), comm.device, splitting.config);
    if (comm.shares) made->resources = comm.resources;
    *splitting.to = made;
  }
  comm.splitting.reset();
  machine().changed();
  return ncclSuccess;
}

}  // namespace echelon::standins

using namespace echelon::standins;

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  Machine::Lock lock;
  check(comm);
  *newcomm = nullptr;
  if (const ncclResult_t result = usable(*comm); result != ncclSuccess) return result;
  if (config == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
    return refused(ncclInvalidArgument, "a color or configuration of a split is not valid");
  if (comm->splits == kMaxSplits)
    return refused(ncclInvalidArgument, "more splits than are emulated");
  comm->splitting = Splitting{comm->splits++, color, newcomm, *config};
  {
    const Clique::Lock clique(*comm->clique);
    Split& split = (*comm->clique)->splits[comm->splitting->number];
    split.color[comm->rank] = color;
    split.key[comm->rank] = key;
    split.called[comm->rank] = true;
  }
  machine().changed();
  // NCCL answers thus although the split is in progress (ncclCommSplit in src/init.cc drops what
  // ncclGroupEndInternal returns), unlike ncclCommInitRankConfig.
  if (!comm->blocking) return ncclSuccess;
  ncclResult_t result = ncclInProgress;
  const auto over = [&] { return comm->aborted || (result = split_of(*comm)) != ncclInProgress; };
  const auto who = [&] { return "ncclCommSplit of " + said(*comm); };
  if (machine().wait(lock, over, who) != cudaSuccess) return ncclUnhandledCudaError;
  if (comm->aborted) return refused(ncclInvalidUsage, "aborted");
  if (result != ncclSuccess || *newcomm == nullptr) return result;
  return wait_for_all(lock, {*newcomm});
}
