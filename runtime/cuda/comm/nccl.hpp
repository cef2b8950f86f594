// NCCL: the communicators of this process.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/comm/call.hpp"
#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon::cuda {

/// Identifier of a group.
using NcclId = std::array<std::int32_t, 32>;
[[nodiscard]] NcclId new_nccl_id();

/// How NCCL is used. Source of the variables' meaning: docs/cuda.md.
struct NcclUse {
  /// Calls return when they are on the stream; else NCCL starts a thread for each.
  bool blocking = false;
  /// Communicators are split off the first one; else each has an identifier of its own.
  bool split = true;
};
/// ECHELON_NCCL_BLOCKING=1, ECHELON_NCCL_SPLIT=0.
[[nodiscard]] NcclUse chosen_nccl_use();

/// Of a communicator.
struct NcclLimits {
  int max_ctas = 0;     ///< thread blocks of a call; 0: NCCL's choice
  bool shares = false;  ///< buffers and internal stream with those that are split off it
};

/// Communicators between GPUs, one member per GPU, and their lifetime. No call of NCCL holds up a
/// thread beyond the run's deadline: nonblocking calls are polled; a thread of this object watches
/// blocking ones, stops the run and aborts the communicators, which ends the call. Errors become
/// RunFailure with the call, the group and NCCL's reason; peer_lost if NCCL reports that another
/// member is lost.
class Nccl {
 public:
  /// `limit`: for a regular end, and for an abort. `peer_report_wait`: when NCCL reports a lost
  /// member, how long to wait for the control connection to report which peer was lost and why.
  explicit Nccl(RunThreads& run_threads, Seconds peer_report_wait = {}, Seconds limit = Seconds{10},
                NcclUse use = {});
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
                                                   Stream stream, const NcclLimits& limits = {});
  /// The same of a group of some members of `parent`, which this object made: all of these call,
  /// with the number of their group. `group` null: of none, returns null.
  [[nodiscard]] std::unique_ptr<Communicator> split(Communicator& parent, const Group* group,
                                                    int number, int member, Stream stream,
                                                    const NcclLimits& limits = {});
  /// Throws asynchronous errors of NCCL in the communicators of a rank of this process. For threads
  /// that wait for its GPU, from any thread.
  void check(int rank);
  /// Aborts all NCCL work in flight; later calls fail. From any thread, repeatedly.
  void abort_all();

 private:
  class SharedComm;
  class End;
  [[nodiscard]] std::shared_ptr<SharedComm> new_link(const Group& group, int member);
  [[nodiscard]] bool finish();
  [[nodiscard]] bool finish_blocking();
  [[nodiscard]] std::vector<std::shared_ptr<SharedComm>> links();
  void watch(const std::stop_token& end);
  void await_calls(Seconds limit);

  RunThreads& run_threads_;
  Seconds peer_report_wait_;
  Seconds limit_;
  NcclUse use_;
  std::mutex mutex_;
  bool aborted_ = false;                            ///< guarded by mutex_
  std::vector<std::shared_ptr<SharedComm>> links_;  ///< guarded by mutex_
  std::optional<std::jthread> watching_;            ///< blocking calls
};

}  // namespace echelon::cuda
