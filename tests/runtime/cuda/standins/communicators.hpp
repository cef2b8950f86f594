// Communicators of NCCL as synchronisations of their members' streams. Under the machine's lock.
#pragma once

#include <nccl.h>

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/runtime/cuda/standins/cliques.hpp"
#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {

/// One call of a member.
struct Request : Terms {
  const void* from = nullptr;
  void* to = nullptr;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
std::string said(const Request& request);
std::size_t bytes_of(ncclDataType_t type);
/// Sizes of a call's input and output; only the root of a broadcast has an input.
std::size_t bytes_read(const Request& request);
std::size_t bytes_written(const Request& request);
/// Reports operands outside live memory of the device, and overlaps that NCCL does not allow.
void check_request(const Request& request);

/// Data movement of matching calls: each member contributes its input, and takes its output after
/// all have contributed. In between one of them, under the clique's lock, reduces in the order of
/// ranks, in fp32 for bf16, rounding once.
void give(const Request& request);
void add_up(const Request& request);
void accept(const Request& request);

/// A split that not all members have called, or whose communicator has no members yet.
struct Splitting {
  int number = 0;
  int color = 0;
  ncclComm_t* to = nullptr;
  ncclConfig_t config{};
};

/// The calls that a nonblocking communicator has not enqueued yet.
struct Deferred {
  cudaStream_t stream;
  Operation operation;
  int polls;
};

}  // namespace echelon::standins

struct ncclComm {
  echelon::standins::Clique* clique = nullptr;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  int size = 0;
  std::string name;
  ncclResult_t joining = ncclInProgress;
  bool aborted = false;
  bool finalized = false;
  int calls = 0;
  std::set<int> peers;  ///< to or from which it has sent or received
  bool shares = false;  ///< splitShare: with those that are split off it
  /// Of one communicator, or of several that share them.
  struct Resources {
    std::deque<std::shared_ptr<int>> launches;  // parts left in each: they run one after the other
    std::set<cudaStream_t> streams;
  };
  std::shared_ptr<Resources> resources = std::make_shared<Resources>();
  int max_ctas = 0;  // 0: not limited
  int splits = 0;
  std::optional<echelon::standins::Splitting> splitting;
  std::vector<echelon::standins::Deferred> deferred;
};

namespace echelon::standins {

inline const std::string kCommunicator = "communicator";
inline const std::string kKilled = "was killed";

std::string said(const ncclComm& comm);
std::string said_of(const ncclComm& comm, int rank);
/// Remembered for ncclGetLastError().
ncclResult_t refused(ncclResult_t result, const std::string& why);
/// Reports a communicator that does not exist.
void check(ncclComm_t comm);
/// ncclSuccess: it accepts calls.
ncclResult_t usable(ncclComm& comm);
/// In a group, ncclCommInitRank() waits at its end.
bool joins_in_group(ncclComm_t comm);
/// State of all members; ncclSuccess: all have joined.
ncclResult_t wait_for_all(Machine::Lock& lock, const std::vector<ncclComm_t>& comms);
/// How the member `rank` ended early: "died" by the test, "aborted", kKilled; "": it did not.
/// Under the clique's lock.
std::string end_of(const ncclComm& comm, int rank);
void flush(ncclComm& comm);
/// Of a communicator that was not there: nullptr.
Clique* clique_of(const ncclUniqueId& id);
/// A new communicator's identifier. False: there is no memory.
bool new_clique(ncclUniqueId& id);
/// Takes the member's place.
ncclComm_t joined(Clique& clique, int nranks, int rank, int device, const ncclConfig_t& config);
/// ncclInProgress until all members have called the split that the communicator is in.
ncclResult_t split_of(ncclComm& comm);
void forget_communicators();

}  // namespace echelon::standins
