// Communicators of NCCL as meetings of their members' streams. Under the machine's lock.
#pragma once

#include <nccl.h>

#include <deque>
#include <memory>
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
/// Of what a call reads and writes; a broadcast's `from` is the root's alone.
std::size_t bytes_read(const Request& request);
std::size_t bytes_written(const Request& request);
/// Complains about operands outside live memory of the device, or that overlap otherwise than NCCL
/// allows.
void check_request(const Request& request);

/// How calls that meet move numbers: each member gives what it reads, and takes what it writes when
/// all have given. In between one of them, under the clique's lock, adds up in the order of ranks,
/// in fp32 for bf16, rounding once.
void give(const Request& request);
void add_up(const Request& request);
void accept(const Request& request);

/// What a nonblocking communicator has not enqueued yet.
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
  std::deque<std::shared_ptr<int>> launches;  // parts left in each: they run one after the other
  std::vector<echelon::standins::Deferred> deferred;
};

namespace echelon::standins {

inline const std::string kCommunicator = "communicator";
inline const std::string kKilled = "was killed";

std::string said(const ncclComm& comm);
std::string said_of(const ncclComm& comm, int rank);
/// Remembered for ncclGetLastError().
ncclResult_t refused(ncclResult_t result, const std::string& why);
/// Complains about a communicator that is not there.
void check(ncclComm_t comm);
/// ncclSuccess: it takes calls.
ncclResult_t usable(ncclComm& comm);
/// In a group, ncclCommInitRank() waits at its end.
bool joins_in_group(ncclComm_t comm);
/// Of all; ncclSuccess: all have come.
ncclResult_t wait_for_all(Machine::Lock& lock, const std::vector<ncclComm_t>& comms);
/// How the member `rank` came to its end before its time: "died" by the test, "aborted", kKilled;
/// "": it did not. Under the clique's lock.
std::string end_of(const ncclComm& comm, int rank);
void flush(ncclComm& comm);
void forget_communicators();

}  // namespace echelon::standins
