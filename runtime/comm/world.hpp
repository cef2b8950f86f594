// World: all ranks of a run and their communicators.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/parallel_plan.hpp"
#include "runtime/comm/call.hpp"
#include "runtime/threads/run_threads.hpp"
#include "runtime/threads/watchdog.hpp"

namespace echelon {

/// The role of a group in a queue: each role of a rank has a communicator of its own. Data-parallel
/// ranks are those of dp·cp, cp innermost; names end in _reduce or _gather for those queues,
/// otherwise the queue is in parentheses.
enum class GroupRole : std::uint8_t {
  tp,           ///< tensor-parallel ranks (compute)
  kv_replicas,  ///< of them, those with a copy of the same key-value head (compute)
  cp,           ///< context-parallel ranks (compute)
  dp_compute,
  dp_reduce,
  dp_gather,
  shard_compute,  ///< ranks that share one copy of what ZeRO splits: shard_group neighbours of
                  ///< dp·cp
  shard_reduce,
  shard_gather,
  replica_compute,  ///< ranks that hold the same shard, one of each shard group
  replica_reduce,
  replica_gather,
  ep,  ///< ranks that share the experts of a stage's layers (compute); with the following
       ///< ones groups of one where ep is 1
  expert_dp_gather,     ///< ranks with the same experts
  expert_shard_reduce,  ///< of these as many as share one copy of what ZeRO splits: shard_group/ep
  expert_shard_gather,
  expert_replica_reduce,  ///< ranks with the same shard of them
  expert_replica_gather,
  forward,   ///< pipeline ranks in order: activations (forward)
  backward,  ///< the same: their gradients (backward)
  tied,      ///< first and last stage, when both hold the word embedding (reduce)
  norm,      ///< all ranks (reduce)
  control,   ///< all ranks: checkpoints and reports (host)
};
inline constexpr int kGroupRoles = 23;
[[nodiscard]] std::string_view name_of(GroupRole role);

/// Whether ranks use the role under the plan, possibly in a group of one: the communicators that
/// backends create if these take memory.
[[nodiscard]] bool is_used(GroupRole role, const ParallelPlan& plan);

/// The groups of a role: every rank is in exactly one; a rank without peers gets a group of one. In
/// the order of their first members.
[[nodiscard]] std::vector<Group> groups_of(GroupRole role, const ParallelPlan& plan,
                                           const ModelSpec& model);

class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual int ranks() const = 0;
  /// Ranks that share the cores of this machine, over all its processes.
  [[nodiscard]] virtual int ranks_on_this_machine() const = 0;
  /// Ranks of this process, ascending.
  [[nodiscard]] virtual const std::vector<int>& local_ranks() const = 0;
  /// The communicator of a local rank. Lives as long as the world.
  [[nodiscard]] virtual Communicator& at(int rank, GroupRole role) = 0;
  /// The link between the watchdogs of its processes; null if all ranks are in this one.
  [[nodiscard]] virtual StatusLink* status_link() = 0;
};

/// All ranks are threads of this process, members of `run_threads`, which outlives the world.
[[nodiscard]] std::unique_ptr<World> thread_world(RunThreads& run_threads, const ParallelPlan& plan,
                                                  const ModelSpec& model);

}  // namespace echelon
