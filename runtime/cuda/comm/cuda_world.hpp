// CudaWorld: the communicators of ranks that compute on GPUs.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/plan_file.hpp"
#include "core/schedule/schedule.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/cuda/comm/nccl.hpp"
#include "runtime/cuda/device/gpus.hpp"

namespace echelon::cuda {

/// The queue that communicators of a role belong to.
[[nodiscard]] Queue queue_of(GroupRole role);
/// Whether they are enqueued on that queue's side stream.
[[nodiscard]] bool is_beside(GroupRole role);

struct CudaWorldOptions {
  /// Bytes of the largest call of a warm-up; NCCL algorithms for larger calls allocate their memory
  /// later. 0: no warm-up.
  std::int64_t warm_up_bytes = 0;
};
/// The largest call that a step of the plan may make, at most 256 MiB: beyond, NCCL is taken to
/// choose by bandwidth alone.
[[nodiscard]] CudaWorldOptions world_options_of(const PlanFile& plan);

/// GroupRole::control communicates between hosts; the other roles use GPU memory and streams:
/// through NCCL if each rank has a GPU of its own, through the shared memory if all ranks are on
/// one GPU. All communicators that the plan uses (is_used) are created here and used once, so that
/// their memory is allocated before the first step. Those of NCCL are split off one of all ranks;
/// those of the reduce queue off the one for norms, and those of key-value replicas off the
/// tensor-parallel one, whose stream they have and whose resources they share.
class CudaWorld final : public World {
 public:
  /// The stream on which the communicators of a role are enqueued.
  using StreamOf = std::function<Stream(int rank, GroupRole role)>;

  /// All processes construct theirs from the same plan, before the run's threads start. Throws
  /// RunFailure.
  CudaWorld(RunThreads& run_threads, std::unique_ptr<World> host, const ParallelPlan& plan,
            const ModelSpec& model, const Gpus& gpus, const StreamOf& stream_of,
            const CudaWorldOptions& options);
  /// Never hangs: if the run failed, pending work on the streams is aborted.
  ~CudaWorld() override;

  [[nodiscard]] int ranks() const override { return host_->ranks(); }
  [[nodiscard]] int ranks_on_this_machine() const override {
    return host_->ranks_on_this_machine();
  }
  [[nodiscard]] const std::vector<int>& local_ranks() const override {
    return host_->local_ranks();
  }
  [[nodiscard]] Communicator& at(int rank, GroupRole role) override;
  [[nodiscard]] StatusLink* status_link() override { return host_->status_link(); }
  [[nodiscard]] World& host() { return *host_; }

  /// Throws asynchronous errors of a local rank's communicators. For threads that wait for its GPU.
  void check(int rank) { nccl_.check(rank); }
  /// After a failure, before anything waits for a GPU: aborts all pending communication.
  void abort_all() { nccl_.abort_all(); }
  /// "nccl 2.28.9", "memory of one GPU" or, with one rank, "none".
  [[nodiscard]] std::string transport() const;
  /// GPU memory of the rank's communicators: the difference of free memory before and after their
  /// creation.
  [[nodiscard]] Bytes communicator_memory(int rank) const { return taken_.at(rank); }

 private:
  struct Ids;
  using Ends = std::array<std::unique_ptr<Communicator>, kGroupRoles>;

  void make_solo_and_shared();
  [[nodiscard]] Ids exchange_ids(int rank);
  void join(int rank, const Ids& ids);
  void join_role(int rank, GroupRole role, const Ids& ids);
  void warm_up(int rank, void* scratch, std::int64_t bytes);
  void wait_for(int rank, GroupRole role);

  RunThreads& run_threads_;
  std::unique_ptr<World> host_;
  Gpus gpus_;
  StreamOf stream_of_;
  bool ring_;                                           ///< of context parallelism
  std::array<std::vector<Group>, kGroupRoles> groups_;  ///< of lines in use
  NcclUse nccl_use_;
  Nccl nccl_;
  std::map<int, std::unique_ptr<Communicator>> roots_;  ///< by local rank; only to be split
  std::map<int, Ends> ends_;                            ///< by local rank
  std::map<int, Bytes> taken_;                          ///< the same
};

}  // namespace echelon::cuda
