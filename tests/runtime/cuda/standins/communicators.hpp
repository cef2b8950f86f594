// Communicators of NCCL as meetings of their members' streams. Under the machine's lock.
#pragma once

#include <nccl.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {

enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send, recv };

/// One call of a member.
struct Request {
  Kind kind = Kind::all_reduce;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;  // as the call has it
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;  // or the peer
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
std::string said(const Request& request);
std::size_t bytes_of(ncclDataType_t type);
/// Of what a call reads and writes; a broadcast's `from` is the root's alone.
std::size_t bytes_read(const Request& request);
std::size_t bytes_written(const Request& request);

/// Calls that belong together: the n-th of all members, or a send and its receive.
struct Meeting {
  struct Member {
    Request request;
    const Part* part = nullptr;  // nullptr: has not called yet
    const int* launch = nullptr;
    bool lost = false;  // the test lets it never arrive
  };
  std::vector<Member> members;  // by rank; sender and receiver
  int number = 0;
  bool over = false;
};
/// Checks all operands, and moves the numbers. Sums are in the order of ranks, in fp32 for bf16,
/// and rounded once.
void carry_out(const Meeting& meeting);
/// Complains about operands outside live memory of the device, or that overlap otherwise than NCCL
/// allows.
void check_request(const Request& request);

/// What the members of a communicator share.
struct Clique {
  int size = 0;
  int joined = 0;
  std::vector<ncclComm_t> members;
  std::vector<int> collectives;  // called by each rank
  std::map<int, std::shared_ptr<Meeting>> open;
  struct Channel {
    int calls[2] = {0, 0};  // of the sender, of the receiver
    std::map<int, std::shared_ptr<Meeting>> open;
  };
  std::map<std::pair<int, int>, Channel> channels;  // from, to
};

/// What a nonblocking communicator has not put on its stream yet.
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
  std::string name;
  ncclResult_t joining = ncclInProgress;
  ncclResult_t error = ncclSuccess;
  bool aborted = false;
  bool finalized = false;
  bool dead = false;  // by the test
  int calls = 0;
  std::deque<std::shared_ptr<int>> launches;  // parts left in each: they run one after the other
  std::vector<echelon::standins::Deferred> deferred;
};

namespace echelon::standins {

inline const std::string kCommunicator = "communicator";

std::string said(const ncclComm& comm);
/// Remembered for ncclGetLastError().
ncclResult_t refused(ncclResult_t result, const std::string& why);
/// Complains about a communicator that is not there.
void check(ncclComm_t comm);
/// ncclSuccess: it takes calls.
ncclResult_t usable(const ncclComm& comm);
/// In a group, ncclCommInitRank() waits at its end.
bool joins_in_group(ncclComm_t comm);
/// Of all; ncclSuccess: all have come.
ncclResult_t wait_for_all(Machine::Lock& lock, const std::vector<ncclComm_t>& comms);
void flush(ncclComm& comm);
void forget_communicators();

}  // namespace echelon::standins
