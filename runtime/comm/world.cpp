#include "runtime/comm/world.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/expects.hpp"
#include "core/plan/process_grid.hpp"
#include "runtime/comm/thread_communicator.hpp"

namespace echelon {
namespace {

/// The part of `all` of `count` consecutive members in which `rank` is.
std::vector<int> part_with(int rank, int count, const std::vector<int>& all) {
  const auto at = std::ranges::find(all, rank) - all.begin();
  const auto first = all.begin() + at / count * count;
  return {first, first + count};
}

/// The ranks with the same place as `rank` in each such part.
std::vector<int> across_with(int rank, int count, const std::vector<int>& all) {
  const auto at = std::ranges::find(all, rank) - all.begin();
  std::vector<int> members;
  for (auto i = static_cast<std::size_t>(at % count); i < all.size();
       i += static_cast<std::size_t>(count)) {
    members.push_back(all[i]);
  }
  return members;
}

/// Ranks with the same experts that share one copy of what ZeRO splits.
int expert_shard_group(const ParallelPlan& plan) {
  return plan.zero > 0 ? std::max(1, plan.shard_group / plan.ep) : 1;
}

/// The group of the role that `rank` is in.
std::vector<int> members_with(int rank, GroupRole role, const ProcessGrid& grid,
                              const ParallelPlan& plan, const ModelSpec& model) {
  switch (role) {
    case GroupRole::tp: return grid.group(Axis::tp, rank);
    case GroupRole::kv_replicas: {
      const int copies = model.kv_heads < plan.tp ? plan.tp / model.kv_heads : 1;
      return part_with(rank, copies, grid.group(Axis::tp, rank));
    }
    case GroupRole::cp: return grid.group(Axis::cp, rank);
    case GroupRole::dp_compute:
    case GroupRole::dp_reduce:
    case GroupRole::dp_gather: return grid.data_group(rank);
    case GroupRole::shard_compute:
    case GroupRole::shard_reduce:
    case GroupRole::shard_gather: return part_with(rank, plan.shard_group, grid.data_group(rank));
    case GroupRole::replica_compute:
    case GroupRole::replica_reduce:
    case GroupRole::replica_gather:
      return across_with(rank, plan.shard_group, grid.data_group(rank));
    case GroupRole::ep: return grid.group(Axis::ep, rank);
    case GroupRole::expert_dp_gather:
      return plan.ep > 1 ? grid.group(Axis::expert_dp, rank) : std::vector{rank};
    case GroupRole::expert_shard_reduce:
    case GroupRole::expert_shard_gather:
      if (plan.ep == 1) return {rank};
      return part_with(rank, expert_shard_group(plan), grid.group(Axis::expert_dp, rank));
    case GroupRole::expert_replica_reduce:
    case GroupRole::expert_replica_gather:
      if (plan.ep == 1) return {rank};
      return across_with(rank, expert_shard_group(plan), grid.group(Axis::expert_dp, rank));
    case GroupRole::forward:
    case GroupRole::backward: return grid.group(Axis::pp, rank);
    case GroupRole::tied: {
      const std::vector<int> stages = grid.group(Axis::pp, rank);
      const bool at_end = rank == stages.front() || rank == stages.back();
      if (!model.tied_embeddings || !at_end || plan.pp == 1) return {rank};
      return {stages.front(), stages.back()};
    }
    case GroupRole::norm:
    case GroupRole::control: break;
  }
  std::vector<int> all(static_cast<std::size_t>(grid.ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class ThreadWorld final : public World {
 public:
  ThreadWorld(RunThreads& run_threads, const ParallelPlan& plan, const ModelSpec& model)
      : ranks_(static_cast<std::size_t>(plan.gpus())), ends_(ranks_.size()) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
    for (int role = 0; role < kGroupRoles; ++role) {
      for (const Group& group : groups_of(static_cast<GroupRole>(role), plan, model)) {
        auto ends = thread_communicators(run_threads, group);
        for (std::size_t member = 0; member < ends.size(); ++member) {
          ends_[static_cast<std::size_t>(group.ranks[member])][static_cast<std::size_t>(role)] =
              std::move(ends[member]);
        }
      }
    }
  }
  [[nodiscard]] int ranks() const override { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int ranks_on_this_machine() const override { return ranks(); }
  [[nodiscard]] const std::vector<int>& local_ranks() const override { return ranks_; }
  [[nodiscard]] Communicator& at(int rank, GroupRole role) override {
    return *ends_.at(static_cast<std::size_t>(rank))[static_cast<std::size_t>(role)];
  }
  [[nodiscard]] StatusLink* status_link() override { return nullptr; }

 private:
  std::vector<int> ranks_;
  std::vector<std::array<std::unique_ptr<Communicator>, kGroupRoles>> ends_;  ///< by rank
};

}  // namespace

std::string_view name_of(GroupRole role) {
  static constexpr std::array<std::string_view, kGroupRoles> kNames = {"tp",
                                                                       "kv replicas",
                                                                       "cp",
                                                                       "dp (compute)",
                                                                       "dp (reduce)",
                                                                       "dp (gather)",
                                                                       "shard (compute)",
                                                                       "shard (reduce)",
                                                                       "shard (gather)",
                                                                       "replica (compute)",
                                                                       "replica (reduce)",
                                                                       "replica (gather)",
                                                                       "ep",
                                                                       "expert dp (gather)",
                                                                       "expert shard (reduce)",
                                                                       "expert shard (gather)",
                                                                       "expert replica (reduce)",
                                                                       "expert replica (gather)",
                                                                       "pipeline (forward)",
                                                                       "pipeline (backward)",
                                                                       "tied embeddings",
                                                                       "all (reduce)",
                                                                       "all (control)"};
  return kNames[static_cast<std::size_t>(role)];
}

bool is_used(GroupRole role, const ParallelPlan& plan) {
  switch (role) {
    case GroupRole::dp_compute:
    case GroupRole::dp_gather:
    case GroupRole::replica_compute:
    case GroupRole::replica_gather: return false;
    case GroupRole::dp_reduce: return plan.zero == 0 || plan.shard_group == 1;
    case GroupRole::shard_compute: return plan.zero == 3;  // tied embeddings, after the update
    case GroupRole::shard_reduce:
    case GroupRole::shard_gather: return plan.zero > 0;
    case GroupRole::replica_reduce: return plan.zero > 0 && plan.shard_group > 1;
    case GroupRole::expert_dp_gather:
    case GroupRole::expert_replica_gather: return false;
    case GroupRole::ep:
    case GroupRole::expert_replica_reduce: return plan.ep > 1;
    case GroupRole::expert_shard_reduce:
    case GroupRole::expert_shard_gather: return plan.ep > 1 && plan.zero > 0;
    default: return true;
  }
}

std::vector<Group> groups_of(GroupRole role, const ParallelPlan& plan, const ModelSpec& model) {
  const ProcessGrid grid(plan);
  EXPECTS(plan.shard_group >= 1 && plan.dp * plan.cp % plan.shard_group == 0,
          "shard groups divide the data-parallel ranks");
  EXPECTS(model.kv_heads >= 1 && (model.kv_heads >= plan.tp || plan.tp % model.kv_heads == 0),
          "every key-value head has equally many copies");
  std::vector<Group> groups;
  std::vector<bool> placed(static_cast<std::size_t>(grid.ranks()));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (placed[static_cast<std::size_t>(rank)]) continue;
    Group group{std::string(name_of(role)), members_with(rank, role, grid, plan, model)};
    for (const int member : group.ranks) placed[static_cast<std::size_t>(member)] = true;
    groups.push_back(std::move(group));
  }
  return groups;
}

std::unique_ptr<World> thread_world(RunThreads& run_threads, const ParallelPlan& plan,
                                    const ModelSpec& model) {
  return std::make_unique<ThreadWorld>(run_threads, plan, model);
}

}  // namespace echelon
