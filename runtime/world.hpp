// World: all ranks of a run and what each of them communicates through.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/parallel_plan.hpp"
#include "runtime/call.hpp"
#include "runtime/crew.hpp"

namespace echelon {

/// One use of a group by one queue: each line of a rank is a communicator of its own. Data-parallel
/// ranks are those of dp·cp, cp innermost; where the reduce queue and the gather queue are meant,
/// the name says so, everything else is the queue in parentheses.
enum class Line : std::uint8_t {
  tp,           ///< tensor-parallel ranks (compute)
  kv_replicas,  ///< of them, those with a copy of the same key-value head (compute)
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
  forward,   ///< pipeline ranks in order: activations (forward)
  backward,  ///< the same: their gradients (backward)
  tied,      ///< first and last stage, when both hold the word embedding (reduce)
  norm,      ///< all ranks (reduce)
  host,      ///< all ranks: checkpoints and reports (host)
};
inline constexpr int kLines = 16;
[[nodiscard]] std::string_view name_of(Line line);

/// Whether ranks that train by the plan communicate there, if only with themselves: what backends
/// make whose communicators take memory.
[[nodiscard]] bool is_used(Line line, const ParallelPlan& plan);

/// The groups of a line: every rank is in exactly one; those that talk to nobody are alone in
/// theirs. In the order of their first members.
[[nodiscard]] std::vector<Group> groups_of(Line line, const ParallelPlan& plan,
                                           const ModelSpec& model);

class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual int ranks() const = 0;
  /// Those that share the cores of this machine, of all its processes.
  [[nodiscard]] virtual int ranks_on_this_machine() const = 0;
  /// Those of this process, rising.
  [[nodiscard]] virtual const std::vector<int>& local_ranks() const = 0;
  /// The end of a local rank. Lives as long as the world.
  [[nodiscard]] virtual Communicator& at(int rank, Line line) = 0;
};

/// All ranks are threads of this process: members of `crew`, which outlives the world.
[[nodiscard]] std::unique_ptr<World> thread_world(Crew& crew, const ParallelPlan& plan,
                                                  const ModelSpec& model);

}  // namespace echelon
