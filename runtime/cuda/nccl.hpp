// NCCL: what this process has of it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/call.hpp"
#include "runtime/crew.hpp"
#include "runtime/cuda/kernels.hpp"

namespace echelon::cuda {

/// What the members of a group know each other by.
using NcclId = std::array<std::int32_t, 32>;
[[nodiscard]] NcclId new_nccl_id();

/// Communicators between GPUs, one member per GPU, and their end. No call of NCCL blocks: what is
/// under way is asked for, under the crew's deadline. Errors become RunFailure with the call, the
/// group and NCCL's reason; peer_lost where NCCL says that another member is gone.
class Nccl {
 public:
  /// `limit`: of a good end, and of giving up. `hearsay`: where NCCL says that a member is gone,
  /// how long to wait for the crew to be ended by who knows which one, and why.
  explicit Nccl(Crew& crew, Seconds hearsay = {}, Seconds limit = Seconds{10});
  /// The good end, all members together; where the run failed, or the others do not come, all is
  /// given up.
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  /// One member's end, whose calls are put on `stream` of the calling thread's device: returns when
  /// all members are there, so members of one process call from threads of their own. NCCL adds up
  /// in an order of its own, the same for all members. Not to be used after this is gone.
  [[nodiscard]] std::unique_ptr<Communicator> join(const Group& group, int member, const NcclId& id,
                                                   Stream stream);
  /// Throws what NCCL noticed in the background. For who waits for a GPU, from any thread.
  void check();
  /// Ends what runs on the streams, for whatever it waits there; whoever calls afterwards gets a
  /// failure. From any thread, also twice.
  void abort_all();

 private:
  class Link;
  class End;
  [[nodiscard]] bool finish();
  [[nodiscard]] std::vector<std::shared_ptr<Link>> links();

  Crew& crew_;
  Seconds hearsay_;
  Seconds limit_;
  std::mutex mutex_;
  bool given_up_ = false;                     ///< guarded by mutex_
  std::vector<std::shared_ptr<Link>> links_;  ///< guarded by mutex_
};

}  // namespace echelon::cuda
