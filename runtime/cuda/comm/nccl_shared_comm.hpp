// One communicator of NCCL. Only for the sources of runtime/cuda/comm/.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "runtime/cuda/comm/nccl.hpp"
#include "runtime/cuda/device/resources.hpp"

namespace echelon::cuda {

[[nodiscard]] inline bool is_error(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}
/// Errors only. `comm` may be null.
[[nodiscard]] RunFailure nccl_failure(ncclResult_t result, ncclComm_t comm,
                                      const std::string& where);

/// One ncclComm. Its lock is never held for long, and not during a call that blocks.
class Nccl::SharedComm : public std::enable_shared_from_this<SharedComm> {
 public:
  SharedComm(RunThreads& run_threads, Seconds peer_report_wait, Group group, int rank,
             bool blocking)
      : run_threads_(run_threads),
        peer_report_wait_(peer_report_wait),
        group_(std::move(group)),
        rank_(rank),
        blocking_(blocking) {}

  [[nodiscard]] const Group& group() const { return group_; }
  /// Of the member.
  [[nodiscard]] int rank() const { return rank_; }
  /// A private word on the GPU. It is freed after the communicator, since until then freeing it
  /// might have to wait for the GPU.
  [[nodiscard]] void* barrier_word() const { return barrier_word_.as<void>(); }
  void join(int member, const NcclId& id, const NcclLimits& limits);
  /// Of `parent`'s members; null: into no group.
  static void split(SharedComm& parent, const std::shared_ptr<SharedComm>& made, int number,
                    int member, const NcclLimits& limits);
  /// Returns when it is on the stream.
  void enqueue(const Call& call, const std::function<ncclResult_t(ncclComm_t)>& start);
  void check();
  /// Releases the communicator. Null: already released.
  [[nodiscard]] ncclComm_t release();
  /// Starts the regular end. False: impossible.
  [[nodiscard]] bool finalize();
  [[nodiscard]] ncclResult_t state();
  /// A blocking call that has begun and not returned.
  struct Running {
    std::string what;
    Seconds since;
  };
  [[nodiscard]] std::optional<Running> running();

 private:
  [[nodiscard]] ncclConfig_t config(const NcclLimits& limits) const;
  void await_result(ncclResult_t result, const std::string& what);
  void await_made(ncclResult_t result, const std::string& what);
  [[nodiscard]] ncclResult_t blocking_call(const std::string& what,
                                           const std::function<ncclResult_t()>& call);
  [[nodiscard]] RunFailure given_up() const {
    return {RunFailure::Kind::stopped, describe(group_) + ": NCCL was given up"};
  }

  RunThreads& run_threads_;
  const Seconds peer_report_wait_;
  const Group group_;
  const int rank_;
  const bool blocking_;
  const DeviceBuffer barrier_word_ =
      DeviceBuffer::required(sizeof(std::int32_t), DeviceBuffer::Where::device, "barriers");
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;       ///< guarded by mutex_
  bool released_ = false;           ///< guarded by mutex_
  std::optional<Running> running_;  ///< guarded by mutex_
  ncclComm_t made_ = nullptr;       ///< where NCCL puts it, from a thread of its own
  ncclComm_t nowhere_ = nullptr;    ///< the same of splits into no group
  ncclComm_t handed_ = nullptr;     ///< by release(), while it was made; guarded by mutex_
};

}  // namespace echelon::cuda
