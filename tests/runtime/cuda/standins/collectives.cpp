// Calls of NCCL's members, their groups, and how they meet.
#include <algorithm>

#include "tests/runtime/cuda/standins/communicators.hpp"

namespace echelon::standins {
namespace {

/// Of a host thread, between ncclGroupStart() and the end of the outermost group.
struct OpenGroup {
  std::uint64_t machine = 0;
  int depth = 0;
  std::vector<Request> requests;
  std::vector<ncclComm_t> joining;
};
OpenGroup& open_group() {
  thread_local OpenGroup mine;
  if (mine.machine != machine().number()) {
    mine = {};
    mine.machine = machine().number();
  }
  return mine;
}

bool point_to_point(Kind kind) { return kind == Kind::send || kind == Kind::recv; }

/// What has to be equal in calls that meet.
bool agree(const Request& one, const Request& other) {
  if (one.count != other.count || one.type != other.type) return false;
  if (point_to_point(one.kind)) return true;
  const bool reduces = one.kind == Kind::all_reduce || one.kind == Kind::reduce_scatter;
  return one.kind == other.kind && (!reduces || one.reduction == other.reduction) &&
         (one.kind != Kind::broadcast || one.root == other.root);
}

/// The meeting of a call, in which it takes its place `at`.
std::shared_ptr<Meeting> meet(const Request& request, std::size_t& at) {
  Clique& clique = *request.comm->clique;
  const int rank = request.comm->rank;
  std::map<int, std::shared_ptr<Meeting>>* open = &clique.open;
  int* calls = &clique.collectives[static_cast<std::size_t>(rank)];
  std::size_t members = static_cast<std::size_t>(clique.size);
  at = static_cast<std::size_t>(rank);
  if (point_to_point(request.kind)) {
    const bool sends = request.kind == Kind::send;
    Clique::Channel& channel =
        clique.channels[sends ? std::pair(rank, request.root) : std::pair(request.root, rank)];
    open = &channel.open;
    at = sends ? 0 : 1;
    calls = &channel.calls[at];
    members = 2;
  }
  const int number = (*calls)++;
  std::shared_ptr<Meeting>& meeting = (*open)[number];
  if (!meeting) {
    meeting = std::make_shared<Meeting>();
    meeting->members.resize(members);
    meeting->number = number + 1;
  }
  const std::shared_ptr<Meeting> found = meeting;
  std::size_t there = 0;
  for (const Meeting::Member& other : found->members) {
    if (other.part == nullptr) continue;
    ++there;
    if (!agree(request, other.request)) {
      machine().complain("call " + std::to_string(found->number) + " of a communicator is " +
                         said(request) + ", and " + said(other.request));
    }
  }
  if (there + 1 == members) open->erase(number);
  return found;
}

std::string waits_for_others(const Meeting& meeting, const ncclComm& me) {
  if (meeting.over || me.aborted) return "";
  const std::size_t count = meeting.members.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Meeting::Member& member = meeting.members[i];
    if (member.part == nullptr) {
      // Of a send the peer is meant.
      const Request& mine = meeting.members[1 - std::min<std::size_t>(i, 1)].request;
      const bool pair = mine.comm != nullptr && point_to_point(mine.kind);
      const std::size_t rank = pair ? static_cast<std::size_t>(mine.root) : i;
      const ncclComm* comm = me.clique->members[rank];
      return "rank " + std::to_string(rank) + (comm->dead ? ", which died" : " to call") +
             " (number " + std::to_string(meeting.number) + ")";
    }
    const ncclComm& comm = *member.request.comm;
    const std::string rank = "rank " + std::to_string(comm.rank);
    if (member.lost) return rank + ", which never arrives";
    if (comm.aborted) return rank + ", which aborted";
    if (!machine().reached(*member.part)) return rank + " in " + said(*member.request.stream);
    if (comm.launches.front().get() != member.launch) return "an earlier operation of " + rank;
  }
  return "";
}

/// A failure the test asked for at this call.
const Failure* failure_at(const ncclComm& comm) {
  for (const Failure& failure : machine().settings().failures) {
    const bool meant = failure.communicator.empty() || failure.communicator == comm.name;
    if (meant && failure.rank == comm.rank && comm.calls >= failure.after) return &failure;
  }
  return nullptr;
}

/// The calls of one group on one communicator, which run beside each other.
Parts launched(ncclComm& comm, const std::vector<Request>& requests) {
  check(&comm);  // a graph may come late
  const auto left = std::make_shared<int>(static_cast<int>(requests.size()));
  comm.launches.push_back(left);
  Parts parts;
  for (const Request& request : requests) {
    const bool lost = failure_at(comm) != nullptr;
    ++comm.calls;
    const auto part = std::make_shared<Part>();
    std::size_t at = 0;
    const std::shared_ptr<Meeting> meeting = meet(request, at);
    meeting->members[at] = {request, part.get(), left.get(), lost};
    part->what = said(request);
    part->waits_for = [meeting, &comm] { return waits_for_others(*meeting, comm); };
    part->run = [meeting, &comm, left] {
      if (!comm.aborted && !meeting->over) {
        carry_out(*meeting);
        meeting->over = true;
      }
      if (--*left == 0) std::erase(comm.launches, left);
    };
    parts.push_back(part);
  }
  return parts;
}

/// ncclInProgress: a nonblocking communicator puts it on its stream when it is asked again.
ncclResult_t launch_on(ncclComm& comm, const std::vector<Request>& requests) {
  if (const ncclResult_t result = usable(comm); result != ncclSuccess) return result;
  const Failure* failure = failure_at(comm);
  if (failure != nullptr && failure->kind == Failure::Kind::dies) {
    comm.dead = true;
    for (ncclComm_t member : comm.clique->members) {
      if (member != &comm && member->error == ncclSuccess) member->error = ncclRemoteError;
    }
    return refused(ncclSystemError, said(comm) + " died");
  }
  cudaStream_t const stream = requests.front().stream;
  for (const Request& request : requests) {
    if (request.stream != stream) {
      machine().complain("one group of calls of " + said(comm) + " on several streams");
    }
  }
  const Operation operation{said(requests.front()),
                            [&comm, requests] { return launched(comm, requests); }};
  if (!comm.blocking && !stream->capture && machine().draws().coin()) {
    comm.deferred.push_back({stream, operation, machine().draws().upto(2)});
    return ncclInProgress;
  }
  machine().put(stream, operation);
  return ncclSuccess;
}

ncclResult_t issue(const Request& request) {
  const Machine::Lock lock;
  check(request.comm);
  const ncclComm& comm = *request.comm;
  if (const ncclResult_t result = usable(comm); result != ncclSuccess) return result;
  machine().check(request.stream);
  if (request.stream->device != comm.device) {
    machine().complain(said(request) + " in " + said(*request.stream) + ", not of device " +
                       std::to_string(comm.device));
  }
  if (bytes_of(request.type) == 0 ||
      (request.reduction != ncclSum && request.reduction != ncclMax)) {
    return refused(ncclInvalidArgument, "types and reductions that are not emulated");
  }
  if (request.root < 0 || request.root >= comm.clique->size) {
    return refused(ncclInvalidArgument, "no rank " + std::to_string(request.root));
  }
  check_request(request);
  if (open_group().depth > 0) {
    open_group().requests.push_back(request);
    return ncclSuccess;
  }
  return launch_on(*request.comm, {request});
}

}  // namespace

bool joins_in_group(ncclComm_t comm) {
  if (open_group().depth == 0) return false;
  open_group().joining.push_back(comm);
  return true;
}

std::string said(const Request& request) {
  static constexpr const char* kKinds[] = {"AllReduce", "ReduceScatter", "AllGather",
                                           "Broadcast", "Send",          "Recv"};
  const char* const type = request.type == ncclFloat32    ? " fp32"
                           : request.type == ncclFloat64  ? " fp64"
                           : request.type == ncclBfloat16 ? " bf16"
                                                          : " int32";
  std::string text = std::string(kKinds[static_cast<std::size_t>(request.kind)]) + " of " +
                     std::to_string(request.count) + type;
  if (request.kind == Kind::all_reduce || request.kind == Kind::reduce_scatter) {
    text += request.reduction == ncclSum ? " sum" : " max";
  } else if (request.kind == Kind::broadcast) {
    text += " from rank " + std::to_string(request.root);
  } else if (point_to_point(request.kind)) {
    text +=
        (request.kind == Kind::send ? " to rank " : " from rank ") + std::to_string(request.root);
  }
  return text + " by " + said(*request.comm);
}

}  // namespace echelon::standins

using namespace echelon::standins;

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, std::size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue({Kind::all_reduce, sendbuff, recvbuff, count, datatype, op, 0, comm, stream});
}
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, std::size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return issue(
      {Kind::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream});
}
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, std::size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return issue(
      {Kind::all_gather, sendbuff, recvbuff, sendcount, datatype, ncclSum, 0, comm, stream});
}
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, std::size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue({Kind::broadcast, sendbuff, recvbuff, count, datatype, ncclSum, root, comm, stream});
}
ncclResult_t ncclSend(const void* sendbuff, std::size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return issue({Kind::send, sendbuff, nullptr, count, datatype, ncclSum, peer, comm, stream});
}
ncclResult_t ncclRecv(void* recvbuff, std::size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return issue({Kind::recv, nullptr, recvbuff, count, datatype, ncclSum, peer, comm, stream});
}

ncclResult_t ncclGroupStart() {
  ++open_group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Machine::Lock lock;
  OpenGroup& group = open_group();
  if (group.depth == 0) return refused(ncclInvalidUsage, "ncclGroupEnd without its start");
  if (--group.depth > 0) return ncclSuccess;
  std::vector<Request> requests = std::move(group.requests);
  const std::vector<ncclComm_t> joining = std::move(group.joining);
  group.requests.clear();
  group.joining.clear();
  ncclResult_t result = wait_for_all(lock, joining);
  while (!requests.empty() && (result == ncclSuccess || result == ncclInProgress)) {
    ncclComm_t const comm = requests.front().comm;
    std::vector<Request> own;
    std::copy_if(requests.begin(), requests.end(), std::back_inserter(own),
                 [&](const Request& request) { return request.comm == comm; });
    std::erase_if(requests, [&](const Request& request) { return request.comm == comm; });
    const ncclResult_t one = launch_on(*comm, own);
    if (one != ncclSuccess) result = one;
  }
  return result;
}
