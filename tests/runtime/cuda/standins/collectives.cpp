// Calls of NCCL's members, their groups, and their matching.
#include <algorithm>
#include <cstdio>

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

/// The properties that must be equal in matching calls.
bool agree(const Terms& one, const Terms& other) {
  if (one.count != other.count || one.type != other.type) return false;
  if (point_to_point(one.kind)) return true;
  const bool reduces = one.kind == Kind::all_reduce || one.kind == Kind::reduce_scatter;
  return one.kind == other.kind && (!reduces || one.reduction == other.reduction) &&
         (one.kind != Kind::broadcast || one.root == other.root);
}

std::string in_words(const Terms& terms, int rank, const ncclComm& comm) {
  static constexpr const char* kKinds[] = {"AllReduce", "ReduceScatter", "AllGather",
                                           "Broadcast", "Send",          "Recv"};
  const char* const type = terms.type == ncclFloat32    ? " fp32"
                           : terms.type == ncclFloat64  ? " fp64"
                           : terms.type == ncclBfloat16 ? " bf16"
                                                        : " int32";
  std::string text = std::string(kKinds[static_cast<std::size_t>(terms.kind)]) + " of " +
                     std::to_string(terms.count) + type;
  if (terms.kind == Kind::all_reduce || terms.kind == Kind::reduce_scatter) {
    text += terms.reduction == ncclSum ? " sum" : " max";
  } else if (terms.kind == Kind::broadcast) {
    text += " from rank " + std::to_string(terms.root);
  } else if (point_to_point(terms.kind)) {
    text += (terms.kind == Kind::send ? " to rank " : " from rank ") + std::to_string(terms.root);
  }
  return text + " by " + said_of(comm, rank);
}

/// Calls that belong together: the n-th of all members, or a send and its receive. The clique is
/// read and written under its lock.
class Exchange {
 public:
  /// Counts the call.
  explicit Exchange(const Request& request) : request_(request) {
    const Clique::Lock lock(clique());
    number_ = ++mine().called;
    std::snprintf(mine().where, sizeof mine().where, "%s", said(*request_.stream).c_str());
  }
  /// Whether the inputs of earlier calls were consumed, so that there is room. "": yes.
  [[nodiscard]] std::string waits_to_give() const {
    const Clique::Lock lock(clique());
    for (int at = 0; at < members(); ++at) {
      if (member(at).finished < number_ - 1) return who_is_missing(at, number_ - 1);
    }
    return "";
  }
  void give() const {
    standins::give(request_);
    const Clique::Lock lock(clique());
    mine().terms = request_;
    mine().arrived = number_;
  }
  /// "": the inputs of all members are there.
  [[nodiscard]] std::string waits_to_take() const {
    const Clique::Lock lock(clique());
    for (int at = 0; at < members(); ++at) {
      if (member(at).arrived < number_) return who_is_missing(at, number_);
    }
    return "";
  }
  void accept() const {
    const Clique::Lock lock(clique());
    for (int at = 0; at < members(); ++at) {
      if (agree(request_, member(at).terms)) continue;
      machine().complain("call " + std::to_string(number_) + " of a communicator is " +
                         said(request_) + ", and " +
                         in_words(member(at).terms, rank_of(at), *request_.comm));
    }
    if (!pairs() && clique()->reduced < number_) {
      add_up(request_);
      clique()->reduced = number_;
    }
    standins::accept(request_);
    mine().finished = number_;
    for (int at = 0; at < members(); ++at) {
      if (member(at).finished < number_) return;
    }
    clear();
  }

 private:
  [[nodiscard]] bool pairs() const { return point_to_point(request_.kind); }
  [[nodiscard]] bool sends() const { return request_.kind == Kind::send; }
  [[nodiscard]] Clique& clique() const { return *request_.comm->clique; }
  [[nodiscard]] int members() const { return pairs() ? 2 : request_.comm->size; }
  [[nodiscard]] int sender() const { return sends() ? request_.comm->rank : request_.root; }
  [[nodiscard]] int receiver() const { return sends() ? request_.root : request_.comm->rank; }
  [[nodiscard]] int rank_of(int at) const {
    return !pairs() ? at : at == 0 ? sender() : receiver();
  }
  [[nodiscard]] Progress& member(int at) const {
    return pairs() ? clique()->messages[sender()][receiver()][at] : clique()->collectives[at];
  }
  [[nodiscard]] Progress& mine() const {
    return member(!pairs() ? request_.comm->rank : sends() ? 0 : 1);
  }
  [[nodiscard]] std::string who_is_missing(int at, int number) const {
    const std::string rank = "rank " + std::to_string(rank_of(at));
    const std::string end = end_of(*request_.comm, rank_of(at));
    if (!end.empty()) return rank + ", which " + end;
    if (member(at).called >= number) return rank + " in " + member(at).where;
    return rank + " to call (number " + std::to_string(number) + ")";
  }
  /// No member needs it any more.
  void clear() const {
    if (pairs()) return clique().clear(Clique::of_messages(sender(), receiver()));
    for (int at = 0; at < members(); ++at) clique().clear(Clique::of_collectives(at));
    clique().clear(Clique::of_sums());
  }

  Request request_;
  int number_ = 0;
};

/// A failure that the test requested at this call.
const Failure* failure_at(const ncclComm& comm) {
  for (const Failure& failure : machine().settings().failures) {
    const bool meant = failure.communicator.empty() || failure.communicator == comm.name;
    if (meant && failure.rank == comm.rank && comm.calls >= failure.after) return &failure;
  }
  return nullptr;
}

/// The calls of one group on one communicator, which run concurrently.
Parts launched(ncclComm& comm, const std::vector<Request>& requests) {
  check(&comm);  // a graph may come late
  const auto left = std::make_shared<int>(static_cast<int>(requests.size()));
  comm.resources->launches.push_back(left);
  Parts parts;
  for (const Request& request : requests) {
    const bool lost = failure_at(comm) != nullptr;
    ++comm.calls;
    const auto exchange = std::make_shared<Exchange>(request);
    const auto gives = std::make_shared<Part>();
    gives->what = said(request);
    gives->waits_for = [exchange, &comm, left, lost]() -> std::string {
      if (comm.aborted) return "";
      const std::string rank = "rank " + std::to_string(comm.rank);
      if (lost) return rank + ", which never arrives";
      if (comm.resources->launches.front() != left) return "an earlier operation of " + rank;
      return exchange->waits_to_give();
    };
    gives->run = [exchange, &comm] {
      if (!comm.aborted) exchange->give();
    };
    const auto takes = std::make_shared<Part>();
    takes->what = gives->what;
    takes->after = {gives.get()};
    takes->waits_for = [exchange, &comm]() -> std::string {
      return comm.aborted ? "" : exchange->waits_to_take();
    };
    takes->run = [exchange, &comm, left] {
      if (!comm.aborted) exchange->accept();
      if (--*left == 0) std::erase(comm.resources->launches, left);
    };
    gives->communicates = takes->communicates = true;
    parts.insert(parts.end(), {gives, takes});
  }
  return parts;
}

/// ncclInProgress: a nonblocking communicator enqueues it when it is polled again.
ncclResult_t launch_on(ncclComm& comm, const std::vector<Request>& requests) {
  if (const ncclResult_t result = usable(comm); result != ncclSuccess) return result;
  const Failure* failure = failure_at(comm);
  if (failure != nullptr && failure->kind == Failure::Kind::dies) {
    const Clique::Lock lock(*comm.clique);
    (*comm.clique)->seats[comm.rank].dead = true;
    return refused(ncclSystemError, said(comm) + " died");
  }
  cudaStream_t const stream = requests.front().stream;
  for (const Request& request : requests) {
    if (request.stream != stream) {
      machine().complain("one group of calls of " + said(comm) + " on several streams");
    }
  }
  comm.resources->streams.insert(stream);
  machine().streams_of_resources =
      std::max(machine().streams_of_resources, static_cast<int>(comm.resources->streams.size()));
  const Operation operation{said(requests.front()),
                            [&comm, requests] { return launched(comm, requests); }};
  if (!comm.blocking && !stream->capture && machine().draws().coin()) {
    comm.deferred.push_back({stream, operation, machine().draws().upto(2)});
    return ncclInProgress;
  }
  machine().enqueue(stream, operation);
  return ncclSuccess;
}

ncclResult_t issue(const Request& request) {
  Machine::Lock lock;
  check(request.comm);
  ncclComm& comm = *request.comm;
  const Failure* const failure = failure_at(comm);
  if (failure != nullptr && failure->kind == Failure::Kind::never_returns) {
    const auto who = [&] { return said(request); };
    if (machine().wait(
            lock, [&] { return comm.aborted; }, who) != cudaSuccess)
      return ncclUnhandledCudaError;
    return refused(ncclInvalidUsage, "aborted");
  }
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
  if (request.root < 0 || request.root >= comm.size) {
    return refused(ncclInvalidArgument, "no rank " + std::to_string(request.root));
  }
  check_request(request);
  if (point_to_point(request.kind) && comm.peers.insert(request.root).second) {
    ++machine().connected_peers;
  }
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
  return in_words(request, request.comm->rank, *request.comm);
}

}  // namespace echelon::standins

using namespace echelon::standins;

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, std::size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue({{Kind::all_reduce, count, datatype, op, 0}, sendbuff, recvbuff, comm, stream});
}
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, std::size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return issue(
      {{Kind::reduce_scatter, recvcount, datatype, op, 0}, sendbuff, recvbuff, comm, stream});
}
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, std::size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return issue(
      {{Kind::all_gather, sendcount, datatype, ncclSum, 0}, sendbuff, recvbuff, comm, stream});
}
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, std::size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue(
      {{Kind::broadcast, count, datatype, ncclSum, root}, sendbuff, recvbuff, comm, stream});
}
ncclResult_t ncclSend(const void* sendbuff, std::size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return issue({{Kind::send, count, datatype, ncclSum, peer}, sendbuff, nullptr, comm, stream});
}
ncclResult_t ncclRecv(void* recvbuff, std::size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return issue({{Kind::recv, count, datatype, ncclSum, peer}, nullptr, recvbuff, comm, stream});
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
