#include "runtime/cuda/comm/nccl.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/comm/call_communicator.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/device/resources.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon::cuda {
namespace {

/// A lost connection is a system error on the rank that detects it, and a remote one for the
/// others.
RunFailure::Kind kind_of(ncclResult_t result) {
  switch (result) {
    case ncclSystemError:
    case ncclRemoteError: return RunFailure::Kind::peer_lost;
    case ncclUnhandledCudaError: return RunFailure::Kind::environment;
    default: return RunFailure::Kind::defect;
  }
}

/// Errors only. `comm` may be null.
RunFailure nccl_failure(ncclResult_t result, ncclComm_t comm, const std::string& where) {
  std::string text = fmt::format("{}: NCCL says {}", where, ncclGetErrorString(result));
  const char* const more = ncclGetLastError(comm);
  if (more != nullptr && *more != '\0') text += fmt::format(" ({})", more);
  return {kind_of(result), text};
}

/// NCCL reports neither which peer was lost nor why, and an abort by a failed member looks the
/// same. The control connection between the hosts reports both, a moment later if that member
/// aborts its GPU work first.
RunFailure as_peers_report(RunThreads& run_threads, const RunFailure& failure, Seconds limit) {
  const Seconds start = steady_now();
  while (failure.kind() == RunFailure::Kind::peer_lost && steady_now() - start < limit) {
    if (run_threads.stopping()) return run_threads.failure();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return failure;
}

bool is_error(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

ncclDataType_t type_of(Element element) {
  switch (element) {
    case Element::f32: return ncclFloat32;
    case Element::f64: return ncclFloat64;
    case Element::bf16: return ncclBfloat16;
    case Element::i32: return ncclInt32;
  }
  return ncclFloat32;
}

/// False: not complete within the limit; it is abandoned.
bool is_over_within(Seconds limit, const std::function<void()>& work) {
  std::promise<void> promise;
  const std::future<void> over = promise.get_future();
  std::thread thread([work, done = std::move(promise)]() mutable {
    work();
    done.set_value();
  });
  const bool in_time =
      over.wait_for(std::chrono::duration<double>(limit.in(kSecond))) == std::future_status::ready;
  if (in_time) {
    thread.join();
  } else {
    thread.detach();
  }
  return in_time;
}

}  // namespace

/// One ncclComm, used under its lock, which is never held for long.
class Nccl::SharedComm {
 public:
  SharedComm(RunThreads& run_threads, Seconds peer_report_wait, Group group)
      : run_threads_(run_threads), peer_report_wait_(peer_report_wait), group_(std::move(group)) {}

  [[nodiscard]] const Group& group() const { return group_; }
  /// A private word on the GPU. It is freed after the communicator, since until then freeing it
  /// might have to wait for the GPU.
  [[nodiscard]] void* barrier_word() const { return barrier_word_.as<void>(); }
  void join(int member, const NcclId& id);
  /// Returns when it is on the stream.
  void enqueue(const Call& call, const std::function<ncclResult_t(ncclComm_t)>& start);
  void check();
  /// Releases the communicator. Null: already released.
  [[nodiscard]] ncclComm_t release() {
    const std::lock_guard lock(mutex_);
    return std::exchange(comm_, nullptr);
  }
  /// Starts the regular end. False: impossible.
  [[nodiscard]] bool finalize();
  [[nodiscard]] ncclResult_t state();

 private:
  void await_result(ncclResult_t result, const std::string& what);

  RunThreads& run_threads_;
  const Seconds peer_report_wait_;
  const Group group_;
  const DeviceBuffer barrier_word_ =
      DeviceBuffer::required(sizeof(std::int32_t), DeviceBuffer::Where::device, "barriers");
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  ///< guarded by mutex_
};

/// Status of the operation started last. Throws if the communicator was aborted.
ncclResult_t Nccl::SharedComm::state() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) {
    throw RunFailure(RunFailure::Kind::stopped, describe(group_) + ": NCCL was given up");
  }
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

/// Waits until the operation started last is no longer in progress.
void Nccl::SharedComm::await_result(ncclResult_t result, const std::string& what) {
  if (result == ncclInProgress) {
    run_threads_.poll([&] { return (result = state()) != ncclInProgress; },
                      [&] { return what + " in the " + describe(group_); });
  }
  if (!is_error(result)) return;
  const RunFailure failure = [&] {
    const std::lock_guard lock(mutex_);
    return nccl_failure(result, comm_, what + " in the " + describe(group_));
  }();
  throw as_peers_report(run_threads_, failure, peer_report_wait_);
}

void Nccl::SharedComm::join(int member, const NcclId& id) {
  ncclUniqueId unique;
  static_assert(sizeof unique == sizeof id);
  std::memcpy(&unique, id.data(), sizeof unique);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = group_.name.c_str();  // lives as long as the communicator
#endif
  const ncclResult_t result = [&] {
    const std::lock_guard lock(mutex_);
    return ncclCommInitRankConfig(&comm_, group_.size(), unique, member, &config);
  }();
  await_result(result, "joining");
}

void Nccl::SharedComm::enqueue(const Call& call,
                               const std::function<ncclResult_t(ncclComm_t)>& start) {
  const ncclResult_t result = [&] {
    const std::lock_guard lock(mutex_);
    return comm_ == nullptr ? ncclInProgress : start(comm_);
  }();
  if (result != ncclSuccess) await_result(result, describe(group_, call));
}

void Nccl::SharedComm::check() {
  const std::optional<RunFailure> failure = [&]() -> std::optional<RunFailure> {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return {};
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    if (is_error(asked)) return nccl_failure(asked, comm_, describe(group_));
    if (is_error(state)) return nccl_failure(state, comm_, describe(group_));
    return {};
  }();
  if (failure) throw as_peers_report(run_threads_, *failure, peer_report_wait_);
}

bool Nccl::SharedComm::finalize() {
  const std::lock_guard lock(mutex_);
  return comm_ != nullptr && !is_error(ncclCommFinalize(comm_));
}

class Nccl::End final : public CallCommunicator {
 public:
  End(std::shared_ptr<SharedComm> link, int rank, Stream stream)
      : link_(std::move(link)), rank_(rank), stream_(stream) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return link_->group().size(); }
  [[nodiscard]] Seconds transfer_began() const override { return {}; }

 private:
  void carry_out(const Call& call, const void* in, void* out) override;

  std::shared_ptr<SharedComm> link_;
  int rank_;
  Stream stream_;
};

void Nccl::End::carry_out(const Call& call, const void* in, void* out) {
  if (call.count == 0 && call.operation != Operation::barrier) return;
  const auto count = static_cast<std::size_t>(call.count);
  const ncclDataType_t type = type_of(call.element);
  const ncclRedOp_t how = call.how == Reduction::sum ? ncclSum : ncclMax;
  link_->enqueue(call, [&](ncclComm_t comm) {
    switch (call.operation) {
      case Operation::all_reduce: return ncclAllReduce(in, out, count, type, how, comm, stream_);
      case Operation::reduce_scatter:
        return ncclReduceScatter(in, out, count, type, how, comm, stream_);
      case Operation::all_gather: return ncclAllGather(in, out, count, type, comm, stream_);
      case Operation::broadcast:
        return ncclBroadcast(in, out, count, type, call.other, comm, stream_);
      case Operation::send: return ncclSend(in, count, type, call.other, comm, stream_);
      case Operation::receive: return ncclRecv(out, count, type, call.other, comm, stream_);
      case Operation::barrier:  // NCCL has none
        return ncclAllReduce(link_->barrier_word(), link_->barrier_word(), 1, ncclInt32, ncclMax,
                             comm, stream_);
    }
    return ncclInvalidArgument;
  });
}

NcclId new_nccl_id() {
  ncclUniqueId unique;
  const ncclResult_t result = ncclGetUniqueId(&unique);
  if (is_error(result)) throw nccl_failure(result, nullptr, "a new group");
  NcclId id;
  static_assert(sizeof unique == sizeof id);
  std::memcpy(id.data(), &unique, sizeof id);
  return id;
}

Nccl::Nccl(RunThreads& run_threads, Seconds peer_report_wait, Seconds limit)
    : run_threads_(run_threads), peer_report_wait_(peer_report_wait), limit_(limit) {}

Nccl::~Nccl() {
  if (!run_threads_.stopping() && finish()) return;
  abort_all();
}

std::unique_ptr<Communicator> Nccl::join(const Group& group, int member, const NcclId& id,
                                         Stream stream) {
  const auto link = std::make_shared<SharedComm>(run_threads_, peer_report_wait_, group);
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) {
      throw RunFailure(RunFailure::Kind::stopped, describe(group) + ": NCCL was given up");
    }
    links_.push_back(link);
  }
  link->join(member, id);
  return std::make_unique<End>(link, member, stream);
}

std::vector<std::shared_ptr<Nccl::SharedComm>> Nccl::links() {
  const std::lock_guard lock(mutex_);
  return links_;
}

void Nccl::check() {
  for (const auto& link : links()) link->check();
}

/// All finalize before any is waited for: members of one process would wait for each other.
bool Nccl::finish() {
  const auto all = links();
  for (const auto& link : all) {
    if (!link->finalize()) return false;
  }
  const Seconds start = steady_now();
  for (const auto& link : all) {
    for (;;) {
      const ncclResult_t state = link->state();
      if (is_error(state) || steady_now() - start > limit_) return false;
      if (state == ncclSuccess) break;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  for (const auto& link : all) static_cast<void>(ncclCommDestroy(link->release()));
  return true;
}

/// As a group: aborting one waits for the device, on which a kernel of another may wait.
void Nccl::abort_all() {
  std::vector<ncclComm_t> all;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  const auto links = this->links();
  for (const auto& link : links) {
    if (ncclComm_t const comm = link->release(); comm != nullptr) all.push_back(comm);
  }
  if (all.empty()) return;
  static_cast<void>(is_over_within(limit_, [all, links] {
    static_cast<void>(ncclGroupStart());
    for (ncclComm_t const comm : all) static_cast<void>(ncclCommAbort(comm));
    static_cast<void>(ncclGroupEnd());
  }));
}

}  // namespace echelon::cuda
