#include "runtime/cuda/comm/nccl_shared_comm.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/cuda/device/checks.hpp"
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

}  // namespace

RunFailure nccl_failure(ncclResult_t result, ncclComm_t comm, const std::string& where) {
  std::string text = fmt::format("{}: NCCL says {}", where, ncclGetErrorString(result));
  const char* const more = ncclGetLastError(comm);
  if (more != nullptr && *more != '\0') text += fmt::format(" ({})", more);
  return {kind_of(result), text};
}

/// Also of a call that is making one: NCCL puts it there when it begins (ncclCommInitRankDev in
/// src/init.cc).
ncclComm_t Nccl::SharedComm::release() {
  const std::lock_guard lock(mutex_);
  ncclComm_t const being_made =
      comm_ == nullptr && !released_ ? std::atomic_ref(made_).load() : nullptr;
  released_ = true;
  return comm_ != nullptr ? std::exchange(comm_, nullptr) : handed_ = being_made;
}

std::optional<Nccl::SharedComm::Running> Nccl::SharedComm::running() {
  const std::lock_guard lock(mutex_);
  return running_;
}

/// Status of the operation started last. Throws if the communicator was aborted.
ncclResult_t Nccl::SharedComm::state() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) throw given_up();
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

/// Takes the communicator that NCCL made, from its place.
void Nccl::SharedComm::await_made(ncclResult_t result, const std::string& what) {
  ncclComm_t late = nullptr;
  const bool aborted = [&] {
    const std::lock_guard lock(mutex_);
    if (!released_) comm_ = made_;
    if (released_ && made_ != handed_) late = made_;
    return released_;
  }();
  if (late != nullptr) static_cast<void>(ncclCommAbort(late));
  if (aborted) throw given_up();
  await_result(result, what);
}

ncclConfig_t Nccl::SharedComm::config(const NcclLimits& limits) const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking_ ? 1 : 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
  if (limits.max_ctas > 0) config.maxCTAs = limits.max_ctas;
  if (limits.shares) config.splitShare = 1;
#else
  static_cast<void>(limits);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = group_.name.c_str();  // lives as long as the communicator
#endif
  return config;
}

/// On a thread of its own while a communicator is made, since one without all its members cannot be
/// aborted: then the thread is left behind, in a run that fails.
ncclResult_t Nccl::SharedComm::blocking_call(const std::string& what,
                                             const std::function<ncclResult_t()>& call) {
  int device = 0;
  cuda::check(cudaGetDevice(&device), "ask for the GPU");
  struct Result {
    std::atomic<bool> over = false;
    ncclResult_t result = ncclSuccess;
  };
  const auto shared = std::make_shared<Result>();
  std::thread([shared, call, device] {
    static_cast<void>(cudaSetDevice(device));
    shared->result = call();
    shared->over.store(true, std::memory_order_release);
  }).detach();
  run_threads_.poll([&] { return shared->over.load(std::memory_order_acquire); },
                    [&] { return what + " in the " + describe(group_); });
  return shared->result;
}

void Nccl::SharedComm::join(int member, const NcclId& id, const NcclLimits& limits) {
  ncclUniqueId unique;
  static_assert(sizeof unique == sizeof id);
  std::memcpy(&unique, id.data(), sizeof unique);
  auto call = [self = shared_from_this(), unique, member, own = config(limits)]() mutable {
    return ncclCommInitRankConfig(&self->made_, self->group_.size(), unique, member, &own);
  };
  const ncclResult_t result = blocking_ ? blocking_call("joining", call) : call();
  await_made(result, "joining");
}

/// NCCL fills in the new communicator when the old one's split is over. Until then the old one is
/// in progress, although a nonblocking call returns success (ncclCommSplit in src/init.cc of 2.18
/// to 2.30). Sources besides: PyTorch, torch/csrc/distributed/c10d/NCCLUtils.cpp, NCCLComm::split;
/// NCCL issue 1472.
void Nccl::SharedComm::split(SharedComm& parent, const std::shared_ptr<SharedComm>& made,
                             int number, int member, const NcclLimits& limits) {
  SharedComm& named = made ? *made : parent;
  const ncclComm_t from = [&] {
    const std::lock_guard lock(parent.mutex_);
    if (parent.comm_ == nullptr) throw parent.given_up();
    return parent.comm_;
  }();
  auto call = [old = parent.shared_from_this(), made, from, number, member,
               own = named.config(limits)]() mutable {
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
    return ncclInvalidUsage;  // chosen_nccl_use() does not split
#else
    return made ? ncclCommSplit(from, number, member, &made->made_, &own)
                : ncclCommSplit(from, NCCL_SPLIT_NOCOLOR, 0, &old->nowhere_, &own);
#endif
  };
  const std::string what = "splitting";
  const ncclResult_t result = [&] {
    if (parent.blocking_) return named.blocking_call(what, call);
    const std::lock_guard lock(parent.mutex_);
    if (parent.comm_ == nullptr) throw parent.given_up();
    return call();
  }();
  parent.await_result(parent.blocking_ || is_error(result) ? result : ncclInProgress, what);
  if (made) made->await_made(parent.blocking_ ? ncclSuccess : ncclInProgress, what);
}

void Nccl::SharedComm::enqueue(const Call& call,
                               const std::function<ncclResult_t(ncclComm_t)>& start) {
  if (!blocking_) {
    const ncclResult_t result = [&] {
      const std::lock_guard lock(mutex_);
      return comm_ == nullptr ? ncclInProgress : start(comm_);
    }();
    if (result != ncclSuccess) await_result(result, describe(group_, call));
    return;
  }
  const ncclComm_t comm = [&] {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) throw given_up();
    running_ = {describe(group_, call) + " in the " + describe(group_), steady_now()};
    return comm_;
  }();
  const ncclResult_t result = start(comm);
  const bool aborted = [&] {
    const std::lock_guard lock(mutex_);
    running_.reset();
    return released_;
  }();
  if (aborted) throw given_up();
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

}  // namespace echelon::cuda
