#include "runtime/comm/world.hpp"

#include <map>
#include <numeric>
#include <utility>

#include "core/base/expects.hpp"
#include "core/plan/process_grid.hpp"
#include "runtime/comm/thread_communicator.hpp"

namespace echelon {
namespace {

/// The group of a role that a rank is in, and its position there.
struct Seat {
  std::array<int, 4> group{};
  int place = 0;
};

Seat seat_of(GroupRole role, const Coordinates& at, const ParallelPlan& plan,
             const ModelSpec& model) {
  const int data = at.dp * plan.cp + at.cp;
  switch (role) {
    case GroupRole::tp: return {{at.cp, at.dp, at.pp}, at.tp};
    case GroupRole::kv_replicas: {
      const int copies = model.kv_heads < plan.tp ? plan.tp / model.kv_heads : 1;
      return {{data, at.pp, at.tp / copies}, at.tp % copies};
    }
    case GroupRole::dp_compute:
    case GroupRole::dp_reduce:
    case GroupRole::dp_gather: return {{at.tp, at.pp}, data};
    case GroupRole::shard_compute:
    case GroupRole::shard_reduce:
    case GroupRole::shard_gather:
      return {{at.tp, at.pp, data / plan.shard_group}, data % plan.shard_group};
    case GroupRole::replica_compute:
    case GroupRole::replica_reduce:
    case GroupRole::replica_gather:
      return {{at.tp, at.pp, data % plan.shard_group}, data / plan.shard_group};
    case GroupRole::forward:
    case GroupRole::backward: return {{at.tp, data}, at.pp};
    case GroupRole::tied: {
      const bool ends = model.tied_embeddings && (at.pp == 0 || at.pp == plan.pp - 1);
      return {{at.tp, data, ends ? 0 : 1 + at.pp}, at.pp};
    }
    case GroupRole::norm:
    case GroupRole::control: break;
  }
  return {};  // the place in a group of all is the rank
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

 private:
  std::vector<int> ranks_;
  std::vector<std::array<std::unique_ptr<Communicator>, kGroupRoles>> ends_;  ///< by rank
};

}  // namespace

std::string_view name_of(GroupRole role) {
  static constexpr std::array<std::string_view, kGroupRoles> kNames = {"tp",
                                                                       "kv replicas",
                                                                       "dp (compute)",
                                                                       "dp (reduce)",
                                                                       "dp (gather)",
                                                                       "shard (compute)",
                                                                       "shard (reduce)",
                                                                       "shard (gather)",
                                                                       "replica (compute)",
                                                                       "replica (reduce)",
                                                                       "replica (gather)",
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
    case GroupRole::shard_compute:
    case GroupRole::shard_reduce:
    case GroupRole::shard_gather: return plan.zero > 0;
    case GroupRole::replica_reduce: return plan.zero > 0 && plan.shard_group > 1;
    default: return true;
  }
}

std::vector<Group> groups_of(GroupRole role, const ParallelPlan& plan, const ModelSpec& model) {
  const ProcessGrid grid(plan);
  EXPECTS(plan.shard_group >= 1 && plan.dp * plan.cp % plan.shard_group == 0,
          "shard groups divide the data-parallel ranks");
  EXPECTS(model.kv_heads >= 1 && (model.kv_heads >= plan.tp || plan.tp % model.kv_heads == 0),
          "every key-value head has equally many copies");
  std::map<std::array<int, 4>, std::map<std::pair<int, int>, int>> seats;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const Seat seat = seat_of(role, grid.coordinates(rank), plan, model);
    seats[seat.group][{seat.place, rank}] = rank;
  }
  std::map<int, Group> sorted;
  for (const auto& [key, members] : seats) {
    Group group{std::string(name_of(role)), {}};
    for (const auto& [place, rank] : members) group.ranks.push_back(rank);
    sorted.emplace(group.ranks.front(), std::move(group));
  }
  std::vector<Group> groups;
  for (auto& [first, group] : sorted) groups.push_back(std::move(group));
  return groups;
}

std::unique_ptr<World> thread_world(RunThreads& run_threads, const ParallelPlan& plan,
                                    const ModelSpec& model) {
  return std::make_unique<ThreadWorld>(run_threads, plan, model);
}

}  // namespace echelon
