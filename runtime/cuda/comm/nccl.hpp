// NCCL: the communicators of this process.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/call.hpp"
#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon::cuda {

/// Identifier of a group.
using NcclId = std::array<std::int32_t, 32>;
[[nodiscard]] NcclId new_nccl_id();

/// Communicators between GPUs, one member per GPU, and their lifetime. No call of NCCL blocks:
/// pending calls are polled under the run's deadline. Errors become RunFailure with the call, the
/// group and NCCL's reason; peer_lost if NCCL reports that another member is lost.
class Nccl {
 public:
  /// `limit`: for a regular end, and for an abort. `peer_report_wait`: when NCCL reports a lost
  /// member, how long to wait for the control connection to report which peer was lost and why.
  explicit Nccl(RunThreads& run_threads, Seconds peer_report_wait = {},
                Seconds limit = Seconds{10});
  /// Regular end, all members together; if the run failed, or the others do not come, all
  /// communicators are aborted.
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  /// One member's communicator, whose calls are enqueued on `stream` of the calling thread's
  /// device: returns when all members have joined, so members of one process call from threads of
  /// their own. NCCL sums in its own order, the same for all members. Not to be used after this
  /// object is gone.
  [[nodiscard]] std::unique_ptr<Communicator> join(const Group& group, int member, const NcclId& id,
                                                   Stream stream);
  /// Throws asynchronous errors of NCCL. For threads that wait for a GPU, from any thread.
  void check();
  /// Aborts all NCCL work in flight; later calls fail. From any thread, repeatedly.
  void abort_all();

 private:
  class SharedComm;
  class End;
  [[nodiscard]] bool finish();
  [[nodiscard]] std::vector<std::shared_ptr<SharedComm>> links();

  RunThreads& run_threads_;
  Seconds peer_report_wait_;
  Seconds limit_;
  std::mutex mutex_;
  bool aborted_ = false;                            ///< guarded by mutex_
  std::vector<std::shared_ptr<SharedComm>> links_;  ///< guarded by mutex_
};

}  // namespace echelon::cuda
